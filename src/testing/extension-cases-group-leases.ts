/** Cases of groups: members and their leases. PROTOCOL.md §20.2. */

import {
  at,
  atOnce,
  type CaseSpec,
  type CaseStream,
  countWithStatus,
  ensure,
  equal,
  sleepMs,
  type Site,
} from "./extension-case-kit.ts";
import { CaseGroup, type CaseLease, type CaseMember } from "./extension-case-transactions.ts";

async function streamsOf(site: Site, count: number): Promise<readonly CaseStream[]> {
  const made: CaseStream[] = [];
  while (made.length < count) made.push(await site.letters("abc"));
  return made;
}

/** Creates a group over new streams. */
async function groupOver(site: Site, count: number, leaseMs = 30_000): Promise<CaseGroup> {
  await streamsOf(site, count);
  return new CaseGroup(site).create({ leaseMs });
}

/** Claims and hands over until nothing is asked back. Returns how many streams each member holds at the end. */
async function settle(members: readonly CaseMember[]): Promise<readonly number[]> {
  for (let round = 0; round < 4; round += 1) {
    for (const member of members) {
      const { leases, handOver } = await member.claim();
      const asked = leases.filter(({ stream }) => handOver.includes(stream));
      if (asked.length > 0) (await member.release(...asked)).expect(204);
    }
  }
  const counts: number[] = [];
  for (const member of members) counts.push((await member.claim()).leases.length);
  return counts;
}

/** Returns the first lease. Throws if there is none. */
function single(leases: readonly CaseLease[]): CaseLease {
  const [lease] = leases;
  if (lease === undefined) throw new Error("claim: expected a lease, got none");
  return lease;
}

export const groupLeaseCases: readonly CaseSpec[] = [
  {
    title: "§20.2 a member has its name and a number, and no id is given twice",
    async run(site) {
      const group = await new CaseGroup(site).create({ leaseMs: 5000 });
      const joins = await atOnce(10, () => group.post("join", { name: "till" }));
      const bodies = joins.map((answer) => answer.expect(201).json());
      const ids = (bodies as readonly { member: string; leaseMs: number }[]).map((each) => {
        equal(each.leaseMs, 5000, "leaseMs");
        return each.member;
      });
      equal(new Set(ids).size, 10, "different ids");
      ensure(
        ids.every((id) => id.startsWith("till")),
        `ids: expected all to begin with till, got ${ids.join(", ")}`,
      );
      (await group.post("join", {})).expect(201);
      (await group.post("join", { name: "" })).refused(400, "invalid_request");
    },
  },
  {
    title: "§20.2 a member that is alone gets all streams, with tokens and offsets",
    async run(site) {
      const group = await groupOver(site, 3);
      const { leases, handOver, share, leaseMs } = await (await group.join()).claim();
      equal([leases.length, share, handOver, leaseMs], [3, 3, [], 30_000], "the claim");
      equal(new Set(leases.map(({ token }) => token)).size, 3, "different tokens");
      equal(new Set(leases.map(({ offset }) => offset)).size, 1, "different offsets");
    },
  },
  {
    title: "§20.2 the retry of a claim whose answer was lost has the same answer",
    async run(site) {
      const group = await groupOver(site, 3);
      const member = await group.join();
      const answers = await atOnce(10, () => member.post("claim"));
      equal(countWithStatus(answers, 200), 10, "answers with status 200");
      equal(new Set(answers.map(({ text }) => text)).size, 1, "different answers");
    },
  },
  {
    title: "§20.2 a member that has not claimed takes nothing from the others",
    async run(site) {
      const group = await groupOver(site, 4);
      const member = await group.join();
      await group.join();
      const { leases, share, handOver } = await member.claim();
      equal([leases.length, share, handOver], [4, 4, []], "the claim of the only claimer");
    },
  },
  {
    title: "§20.2 streams are shared by equal parts, the first members getting one more",
    async run(site) {
      const group = await groupOver(site, 5);
      const all: CaseMember[] = [];
      const shares = [[5], [3, 2], [2, 2, 1]];
      for (const expected of shares) {
        all.push(await group.join());
        equal(await settle(all), expected, `shares of ${all.length}`);
      }
      const held = (await Promise.all(all.map((member) => member.claim()))).flatMap(
        ({ leases }) => leases,
      );
      equal(new Set(held.map(({ stream }) => stream)).size, 5, "different streams");
    },
  },
  {
    title: "§20.2 who says max gets no more, and the others share the rest",
    async run(site) {
      const group = await groupOver(site, 5);
      const [modest, other] = [await group.join(), await group.join()];
      const first = await modest.claim({ max: 1 });
      equal([first.leases.length, first.share], [1, 1], "the claim with max");
      const second = await other.claim();
      equal([second.leases.length, second.share], [4, 4], "the claim of the other");
      (await modest.post("claim", { max: -1 })).refused(400, "invalid_request");
    },
  },
  {
    title: "§20.2 a stream is handed over when it is asked back, under a higher token",
    async run(site) {
      const group = await groupOver(site, 2);
      const [one, other] = [await group.join(), await group.join()];
      const before = await one.claim();
      equal((await other.claim()).leases, [], "the first claim of the other");
      const { handOver } = await one.claim();
      equal(handOver.length, 1, "streams to hand over by the claim");
      const asked = single(before.leases.filter(({ stream }) => handOver.includes(stream)));
      const kept = single(before.leases.filter(({ stream }) => !handOver.includes(stream)));
      const commit = (await one.commit({ ...asked, offset: at(1) })).expect(200);
      equal(commit.json(), { leaseMs: 30_000, handOver }, "the answer to the commit");
      (await one.release(asked)).expect(204);
      const got = single((await other.claim()).leases);
      equal([got.stream, got.offset], [asked.stream, at(1)], "what the other gets");
      ensure(got.token > asked.token, `token: expected above ${asked.token}, got ${got.token}`);
      (await one.commit({ ...asked, offset: at(2) })).refused(409, "lease_lost");
      (await one.commit({ ...kept, offset: at(2) })).expect(200);
    },
  },
  {
    title: "§20.2 a stream that is not handed over in time is given to the next claim",
    isSlow: true,
    async run(site) {
      // A member that pauses for a whole lease is lost: on a slow machine a short lease would be.
      const group = await groupOver(site, 2, 2000);
      const [one, other] = [await group.join(), await group.join()];
      const { leases } = await one.claim();
      await other.claim();
      for (let round = 0; round < 8; round += 1) {
        await sleepMs(300);
        (await one.commit()).expect(200);
      }
      const got = single((await other.claim()).leases);
      const old = single(leases.filter(({ stream }) => stream === got.stream));
      (await one.commit({ ...old, offset: at(1) })).refused(409, "lease_lost");
      equal((await one.claim()).leases.length, 1, "leases of the first member");
    },
  },
  {
    title: "§20.2 a silent member is forgotten when another one claims, and its calls are refused",
    isSlow: true,
    async run(site) {
      const group = await groupOver(site, 2, 1000);
      const [one, other] = [await group.join(), await group.join()];
      const lease = single((await one.claim()).leases);
      await sleepMs(1200);
      equal((await other.claim()).leases.length, 2, "leases of the other member");
      (await one.post("claim")).refused(409, "member_lost");
      (await one.commit({ ...lease, offset: at(1) })).refused(409, "member_lost");
      (await one.release(lease)).expect(204);
      equal((await other.claim()).leases.length, 2, "leases after the late release");
    },
  },
  {
    title: "§20.2 a member whose time is over keeps its leases while no other member claims",
    isSlow: true,
    async run(site) {
      const group = await groupOver(site, 1, 1000);
      const member = await group.join();
      const lease = single((await member.claim()).leases);
      await sleepMs(1300);
      (await member.commit({ ...lease, offset: at(1) })).expect(200);
      equal(single((await member.claim()).leases).token, lease.token, "the token");
    },
  },
  {
    title: "§20.2 what a member that leaves has held is free at once, and the member is lost",
    async run(site) {
      const group = await groupOver(site, 2);
      const [one, other] = [await group.join(), await group.join()];
      const lease = single((await one.claim()).leases);
      (await one.post("leave")).expect(204);
      (await one.post("leave")).expect(204);
      equal((await other.claim()).leases.length, 2, "leases of the other member");
      (await one.post("claim")).refused(409, "member_lost");
      (await one.commit({ ...lease, offset: at(1) })).refused(409, "member_lost");
    },
  },
  {
    title: "§20.2 what is released is free, and what is not held is no error to release",
    async run(site) {
      const group = await groupOver(site, 1);
      const [one, other] = [await group.join(), await group.join()];
      const lease = single((await one.claim()).leases);
      (await other.release(lease)).expect(204);
      (await one.release({ ...lease, token: lease.token + 1 })).expect(204);
      (await one.commit({ ...lease, offset: at(1) })).expect(200);
      (await one.release(lease)).expect(204);
      (await one.release(lease)).expect(204);
      (await one.commit({ ...lease, offset: at(2) })).refused(409, "lease_lost");
      equal((await group.get()).json() !== undefined, true, "the group");
    },
  },
  {
    title: "§20 tokens only grow, also when a group is deleted and made again",
    async run(site) {
      const [stream] = await streamsOf(site, 1);
      const group = await new CaseGroup(site).create();
      let last = 0;
      for (let round = 0; round < 6; round += 1) {
        if (round === 3) {
          (await group.delete()).expect(204);
          await group.create();
        }
        const member = await group.join();
        const lease = single((await member.claim()).leases);
        ensure(lease.token > last, `token: expected more than ${last}, got ${lease.token}`);
        last = lease.token;
        (await member.post("leave")).expect(204);
      }
      equal((await group.cursor(stream as CaseStream))["token"], last, "the last token");
    },
  },
];
