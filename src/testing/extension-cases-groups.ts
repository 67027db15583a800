/** Cases of groups: their streams, and their administration. PROTOCOL.md §20, §20.1, §20.4. */

import {
  at,
  type CaseSpec,
  type CaseStream,
  ensure,
  equal,
  JSON_TYPE,
} from "./extension-case-kit.ts";
import { CaseGroup, type CaseOperation, pathOf } from "./extension-case-transactions.ts";

const GROUPS = "/_hapax/groups";
const NO_STORE = { "Cache-Control": "no-store" };

/** Returns the streams of a group with their offsets. */
async function cursorsOf(group: CaseGroup): Promise<Readonly<Record<string, unknown>>> {
  const { cursors } = (await group.get()).expect(200).json() as {
    readonly cursors: readonly CaseOperation[];
  };
  return Object.fromEntries(cursors.map(({ stream, offset }) => [stream, offset]));
}

const offsets = (...pairs: readonly (readonly [CaseStream, string])[]): CaseOperation =>
  Object.fromEntries(
    pairs
      .map(([stream, offset]) => [pathOf(stream), offset] as const)
      .toSorted(([one], [other]) => (one < other ? -1 : 1)),
  );

const routes: readonly CaseSpec[] = [
  {
    title: "§20 a group is created once, and the same again is fine",
    async run(site) {
      const group = new CaseGroup(site);
      const options = { pattern: site.pattern, start: "tail", leaseMs: 5000 };
      (await group.put(options)).expect(201, NO_STORE);
      (await group.put(options)).expect(200);
      (await group.put({ ...options, leaseMs: 6000 })).refused(409, "group_exists");
      (await group.put({ ...options, start: "beginning" })).refused(409, "group_exists");
      (await group.put({ streams: ["/a"] })).refused(409, "group_exists");
    },
  },
  {
    title: "§20 members of a body that are not named are ignored",
    async run(site) {
      const group = new CaseGroup(site);
      (await group.put({ pattern: site.pattern, colour: "red" })).expect(201);
      (await group.post("join", { name: "a", colour: "red" })).expect(201);
    },
  },
  {
    title: "§20 a name is percent-encoded in a path, also with a slash, up to 256 bytes",
    async run(site) {
      const group = new CaseGroup(site, site.newGroup("/é ?"));
      await group.create();
      const shown = (await group.get()).expect(200).json() as CaseOperation;
      equal(shown["group"], group.name, "the name of the group");
      (await site.request("GET", `${GROUPS}/${"a".repeat(257)}`)).refused(400, "invalid_request");
      (await site.request("GET", `${GROUPS}/`)).refused(404, "not_found");
      (await site.request("POST", `${group.path}/other`)).refused(404, "not_found");
    },
  },
  {
    title: "§20 an unknown group is not found by any call, and can be deleted",
    async run(site) {
      const group = new CaseGroup(site);
      const lease = { stream: "/a", token: 1 };
      (await group.get()).refused(404, "group_not_found");
      const calls: readonly (readonly [string, CaseOperation])[] = [
        ["join", {}],
        ["claim", { member: "m" }],
        ["commit", { member: "m", commits: [lease] }],
        ["release", { member: "m", leases: [lease] }],
        ["leave", { member: "m" }],
        ["reset", { to: "tail" }],
      ];
      for (const [act, body] of calls)
        (await group.post(act, body)).refused(404, "group_not_found");
      (await group.delete()).expect(204);
    },
  },
  {
    title: "§20 a deleted group is gone, with its members and offsets",
    async run(site) {
      const stream = await site.letters("abc");
      const group = await new CaseGroup(site).create();
      const member = await group.join();
      const lease = await member.lease(stream);
      (await member.commit({ ...lease, offset: at(2) })).expect(200);
      (await group.delete()).expect(204);
      (await member.post("claim")).refused(404, "group_not_found");
      await group.create();
      (await member.post("claim")).refused(409, "member_lost");
      await group.isAt(stream, at(0));
    },
  },
  {
    title: "§20 groups are listed in the order of their names, with what they have, page by page",
    async run(site) {
      await site.letters("abc");
      await site.letters("d");
      const names = [site.newGroup("a"), site.newGroup("b"), site.newGroup("c")];
      for (const name of names) await new CaseGroup(site, name).create();
      const member = await new CaseGroup(site, names[0]).join();
      await member.claim();
      let after = names[0]?.slice(0, -1) ?? "";
      for (const [index, name] of names.entries()) {
        const query = `?limit=1&after=${encodeURIComponent(after)}`;
        const page = (await site.request("GET", GROUPS + query)).expect(200, NO_STORE).json() as {
          readonly groups: readonly CaseOperation[];
          readonly next?: string;
        };
        const expected = { group: name, members: index === 0 ? 1 : 0, streams: 2, lag: 4 };
        equal(page.groups, [expected], "the page");
        if (page.next !== undefined) equal(page.next, name, "next");
        after = name;
      }
    },
  },
  {
    title: "§20 other methods are refused, and Allow says which there are",
    async run(site) {
      const group = await new CaseGroup(site).create();
      const refusals: readonly (readonly [string, string, string])[] = [
        ["POST", GROUPS, "GET, HEAD, OPTIONS"],
        ["POST", group.path, "GET, HEAD, PUT, DELETE, OPTIONS"],
        ["GET", `${group.path}/claim`, "POST, OPTIONS"],
      ];
      for (const [method, path, Allow] of refusals) {
        (await site.request(method, path)).refused(405, "method_not_allowed", { Allow });
      }
      (await site.request("HEAD", GROUPS)).expect(200);
      (await site.request("HEAD", group.path)).expect(200);
    },
  },
];

const wrong: Readonly<Record<string, CaseOperation | string>> = {
  "without pattern and streams": {},
  "with a relative pattern": { pattern: "orders/*" },
  "with a star inside a segment": { pattern: "/orders-*" },
  "with a relative stream": { streams: ["orders"] },
  "with a stream that is a number": { streams: [1] },
  "with a reserved stream": { streams: ["/_hapax/streams"] },
  "with a lease of a millisecond": { streams: ["/a"], leaseMs: 1 },
  "with a lease that is text": { streams: ["/a"], leaseMs: "5000" },
  "that starts somewhere": { streams: ["/a"], start: "middle" },
  "that is a list": "[]",
};

const wrongCases: readonly CaseSpec[] = Object.entries(wrong).map(([what, options]) => ({
  title: `§20.1 a group ${what} is refused`,
  async run(site) {
    const group = new CaseGroup(site);
    const body = typeof options === "string" ? options : JSON.stringify(options);
    const answer = await site.request("PUT", group.path, { headers: JSON_TYPE, body });
    answer.refused(400, "invalid_request");
    (await group.get()).refused(404, "group_not_found");
  },
}));

const streams: readonly CaseSpec[] = [
  {
    title: "§20.1 streams that exist are in the group from its creation, at the start",
    async run(site) {
      const [one, other] = [await site.letters("abc"), await site.letters("de")];
      const starts: readonly (readonly [string | undefined, string, string])[] = [
        [undefined, at(0), at(0)],
        ["beginning", at(0), at(0)],
        ["tail", at(3), at(2)],
        [at(1), at(1), at(1)],
      ];
      for (const [start, first, second] of starts) {
        const group = await new CaseGroup(site).create(start === undefined ? {} : { start });
        equal(await cursorsOf(group), offsets([one, first], [other, second]), "the offsets");
      }
    },
  },
  {
    title: "§20.1 a start that a stream does not have is refused",
    async run(site) {
      await site.letters("abc");
      const group = new CaseGroup(site);
      (await group.put({ pattern: site.pattern, start: at(4) })).refused(410, "offset_beyond_tail");
      (await group.get()).refused(404, "group_not_found");
    },
  },
  {
    title: "§20.1 a start inside an append is refused",
    async run(site) {
      const stream = await site.stream({}, "abc");
      (await stream.append("d")).expect(204);
      const group = new CaseGroup(site);
      const inside = await group.put({ pattern: site.pattern, start: at(2) });
      inside.refused(400, "invalid_request");
      (await group.get()).refused(404, "group_not_found");
      (await group.put({ pattern: site.pattern, start: at(3) })).expect(201);
    },
  },
  {
    title: "§20.1 streams that come later are in the group from their beginning",
    async run(site) {
      const [matched, named] = [site.newStream(undefined, "/in"), site.newStream()];
      const pattern = site.pattern.replace("**", "*/in");
      const group = await new CaseGroup(site).create({
        pattern,
        streams: [named.path],
        start: "tail",
      });
      equal(await cursorsOf(group), {}, "the offsets before");
      (await matched.create({}, "abc")).expect(201);
      (await named.create({}, "d")).expect(201);
      await site.letters("e");
      equal(await cursorsOf(group), offsets([matched, at(0)], [named, at(0)]), "the offsets");
    },
  },
  {
    title: "§20.1 a stream under the name of a deleted one begins anew, and its old lease is lost",
    async run(site) {
      const stream = await site.letters("abc");
      const group = await new CaseGroup(site).create();
      const member = await group.join();
      const lease = await member.lease(stream);
      (await member.commit({ ...lease, offset: at(2) })).expect(200);
      await stream.delete();
      equal((await member.claim()).leases, [], "leases without a stream");
      (await stream.create({}, "xyz")).expect(201);
      await group.isAt(stream, at(0));
      (await member.commit({ ...lease, offset: at(3) })).refused(409, "lease_lost");
      const again = await member.lease(stream);
      equal(again.offset, at(0), "the offset of the new stream");
      ensure(
        again.token > lease.token,
        `token: expected more than ${lease.token}, got ${again.token}`,
      );
    },
  },
  {
    title: "§20.1 a closed stream that is committed to its end is finished and leased no more",
    async run(site) {
      const stream = await site.letters("abc");
      const group = await new CaseGroup(site).create();
      const member = await group.join();
      const lease = await member.lease(stream);
      await stream.close();
      (await member.commit({ ...lease, offset: at(2) })).expect(200);
      equal((await group.cursor(stream))["finished"], false, "finished before the end");
      (await member.commit({ ...lease, offset: at(3) })).expect(200);
      equal((await group.cursor(stream))["finished"], true, "finished");
      const { leases, share } = await member.claim();
      equal([leases, share], [[], 0], "leases and share");
    },
  },
];

async function reset(group: CaseGroup, body: CaseOperation): Promise<unknown> {
  return (await group.post("reset", body)).expect(200, NO_STORE).json();
}

const administration: readonly CaseSpec[] = [
  {
    title: "§20.4 a group is shown with its options, members and cursors",
    async run(site) {
      const stream = await site.letters("abc");
      const group = await new CaseGroup(site).create({ leaseMs: 5000 });
      const member = await group.join();
      const lease = await member.lease(stream);
      (await member.commit({ ...lease, offset: at(1) })).expect(200);
      const { createdAt, members, cursors, ...rest } = (await group.get()).json() as CaseOperation;
      const options = { pattern: site.pattern, streams: [], start: "beginning", leaseMs: 5000 };
      equal(rest, { group: group.name, ...options }, "the group");
      ensure(
        typeof createdAt === "string" && !Number.isNaN(Date.parse(createdAt)),
        `createdAt: expected a time, got ${String(createdAt)}`,
      );
      const shown = (members as readonly CaseOperation[])[0] ?? {};
      const { expiresInMs, ...others } = shown;
      equal(others, { member: member.id, leases: 1 }, "the member");
      const isLive = typeof expiresInMs === "number" && expiresInMs > 0 && expiresInMs <= 5000;
      ensure(isLive, `expiresInMs: expected 1 to 5000, got ${String(expiresInMs)}`);
      const numbers = { offset: at(1), nextOffset: at(3), lag: 2, token: lease.token };
      const state = { member: member.id, handOver: false, finished: false };
      // Lives are a capability of their own, with cases of their own.
      const places = (cursors as readonly CaseOperation[]).map((one) => ({
        ...one,
        life: undefined,
      }));
      equal(places, [{ stream: stream.path, ...numbers, ...state }], "the cursors");
    },
  },
  {
    title: "§20.4 cursors come in pages, in the order of their names",
    async run(site) {
      const made: string[] = [];
      for (let count = 0; count < 3; count += 1) made.push((await site.stream()).path);
      const group = await new CaseGroup(site).create();
      const seen: unknown[] = [];
      for (let query = "?limit=2"; query !== "";) {
        const page = (await group.get(query)).expect(200).json() as {
          readonly cursors: readonly CaseOperation[];
          readonly next?: string;
        };
        seen.push(...page.cursors.map(({ stream }) => stream));
        const { next } = page;
        query = next === undefined ? "" : `?limit=2&after=${encodeURIComponent(next)}`;
      }
      equal(seen, made.toSorted(), "the streams of all pages");
    },
  },
  {
    title: "§20.4 a reset moves the offsets of all streams, or of one, also back",
    async run(site) {
      const [one, other] = [await site.letters("abc"), await site.letters("de")];
      const group = await new CaseGroup(site).create();
      equal(await reset(group, { to: "tail" }), { streams: 2 }, "the answer");
      equal(await cursorsOf(group), offsets([one, at(3)], [other, at(2)]), "the tails");
      equal(await reset(group, { to: at(1), stream: one.path }), { streams: 1 }, "the answer");
      equal(await cursorsOf(group), offsets([one, at(1)], [other, at(2)]), "one offset");
      equal(await reset(group, { to: "beginning" }), { streams: 2 }, "the answer");
      equal(await cursorsOf(group), offsets([one, at(0)], [other, at(0)]), "the beginnings");
    },
  },
  {
    title: "§20.4 a reset that is not possible changes nothing",
    async run(site) {
      const stream = await site.stream({}, "abc");
      const group = await new CaseGroup(site).create();
      (await group.post("reset", { to: at(4) })).refused(410, "offset_beyond_tail");
      (await group.post("reset", { to: at(2) })).refused(400, "invalid_request");
      const unknown = { to: "tail", stream: site.newStream().path };
      (await group.post("reset", unknown)).refused(404, "stream_not_found");
      (await group.post("reset", {})).refused(400, "invalid_request");
      (await group.post("reset", { to: "middle" })).refused(400, "invalid_request");
      await group.isAt(stream, at(0));
    },
  },
  {
    title: "§20.4 a reset ends the leases of its streams, and a finished one is leased again",
    async run(site) {
      const [one, other] = [await site.letters("abc"), await site.letters("de")];
      await one.close();
      const group = await new CaseGroup(site).create();
      const member = await group.join();
      const [lease, kept] = [await member.lease(one), await member.lease(other)];
      (await member.commit({ ...lease, offset: at(3) })).expect(200);
      await reset(group, { to: "beginning", stream: one.path });
      (await member.commit({ ...lease, offset: at(3) })).refused(409, "lease_lost");
      (await member.commit({ ...kept, offset: at(1) })).expect(200);
      const again = await member.lease(one);
      equal(again.offset, at(0), "the offset after the reset");
      equal((await member.lease(other)).token, kept.token, "the token of the other stream");
    },
  },
  {
    title: "§12.3 claims, commits and lost leases of groups are counted",
    needs: ["admin"],
    async run(site) {
      const metrics = async (name: string): Promise<number> => {
        const { text } = await site.request("GET", "/_hapax/metrics");
        return Number(new RegExp(`^${name} (\\d+)$`, "m").exec(text)?.[1]);
      };
      const names = ["claims", "commits", "leases_lost"].map((what) => `hapax_group_${what}_total`);
      const before = await countAll(names, metrics);
      const stream = await site.letters("abc");
      const member = await (await new CaseGroup(site).create()).join();
      const lease = await member.lease(stream);
      (await member.commit({ ...lease, offset: at(1) })).expect(200);
      (await member.commit({ ...lease, token: 0, offset: at(1) })).refused(409, "lease_lost");
      const grown = (await countAll(names, metrics)).every(
        (count, index) => count > (before[index] ?? Infinity),
      );
      ensure(grown, "metrics of groups: expected all to grow, got some that did not");
      for (const name of ["hapax_groups", "hapax_group_members", "hapax_group_lag_bytes"]) {
        ensure((await metrics(name)) >= 1, `${name}: expected 1 or more, got less`);
      }
    },
  },
];

async function countAll(
  names: readonly string[],
  metrics: (name: string) => Promise<number>,
): Promise<readonly number[]> {
  const counts: number[] = [];
  for (const name of names) counts.push(await metrics(name));
  return counts;
}

export const groupCases: readonly CaseSpec[] = [
  ...routes,
  ...wrongCases,
  ...streams,
  ...administration,
];
