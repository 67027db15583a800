/** Cases of groups: commits, alone and in transactions. PROTOCOL.md §20.3. */

import { at, type CaseSpec, type CaseStream, equal, type Site } from "./extension-case-kit.ts";
import {
  appendOf,
  CaseGroup,
  type CaseLease,
  type CaseMember,
  committed,
  newKey,
  pathOf,
  refusedAt,
  transact,
} from "./extension-case-transactions.ts";

/** Creates two streams, and a member that holds both. */
async function holderOf(site: Site): Promise<{
  readonly streams: readonly [CaseStream, CaseStream];
  readonly group: CaseGroup;
  readonly member: CaseMember;
  readonly leases: readonly [CaseLease, CaseLease];
}> {
  const streams = [await site.letters("abc"), await site.letters("abc")] as const;
  const group = await new CaseGroup(site).create({ streams: streams.map(pathOf) });
  const member = await group.join();
  const leases = [await member.lease(streams[0]), await member.lease(streams[1])] as const;
  return { streams, group, member, leases };
}

const commits: readonly CaseSpec[] = [
  {
    title: "§20.3 a commit moves offsets, and the next holder begins there",
    async run(site) {
      const { streams, group, member, leases } = await holderOf(site);
      const [one, other] = leases;
      const both = [
        { ...one, offset: at(2) },
        { ...other, offset: at(1) },
      ];
      (await member.commit(...both)).expect(200, { "Cache-Control": "no-store" });
      (await member.commit(...both)).expect(200);
      (await member.post("leave")).expect(204);
      const next = await group.join();
      equal((await next.lease(streams[0])).offset, at(2), "the offset of the first stream");
      equal((await next.lease(streams[1])).offset, at(1), "the offset of the second stream");
    },
  },
  {
    title: "§20.3 a token that is not the current one refuses all commits of the call",
    async run(site) {
      const { streams, group, member, leases } = await holderOf(site);
      const [one, other] = leases;
      for (const token of [other.token - 1, other.token + 1, 0]) {
        const answer = await member.commit(
          { ...one, offset: at(1) },
          { ...other, token, offset: at(1) },
        );
        const problem = answer.refused(409, "lease_lost").json() as { streams: unknown };
        equal(problem.streams, [other.stream], "streams in the refusal");
      }
      for (const stream of streams) await group.isAt(stream, at(0));
    },
  },
  {
    title: "§20.3 the token of another member does not count",
    async run(site) {
      const { streams, group, leases } = await holderOf(site);
      const thief = await group.join();
      const answer = await thief.commit({ ...leases[0], offset: at(1) });
      answer.refused(409, "lease_lost");
      await group.isAt(streams[0], at(0));
      const stranger = { member: "stranger", commits: [{ ...leases[0], offset: at(1) }] };
      (await group.post("commit", stranger)).refused(409, "member_lost");
    },
  },
  {
    title: "§20.3 an offset goes neither back nor beyond the tail",
    async run(site) {
      const { streams, group, member, leases } = await holderOf(site);
      const [one, other] = leases;
      (await member.commit({ ...one, offset: at(2) })).expect(200);
      const back = await member.commit({ ...other, offset: at(1) }, { ...one, offset: at(1) });
      const problem = back.refused(409, "offset_regressed").json() as { committed: unknown };
      equal(problem.committed, at(2), "committed in the refusal");
      const beyond = { ...other, offset: at(4) };
      (await member.commit(beyond)).refused(410, "offset_beyond_tail");
      (await member.commit({ ...other, offset: "-1" })).refused(400, "invalid_request");
      await group.isAt(streams[0], at(2));
      await group.isAt(streams[1], at(0));
    },
  },
  {
    title: "§20.3 an offset inside an append is refused, and the committed one stays",
    async run(site) {
      const stream = await site.stream({}, "abc");
      (await stream.append("de")).expect(204);
      const group = await new CaseGroup(site).create({ streams: [pathOf(stream)] });
      const member = await group.join();
      const lease = await member.lease(stream);
      for (const inside of [1, 2, 4]) {
        const answer = await member.commit({ ...lease, offset: at(inside) });
        const problem = answer.refused(400, "invalid_request").json() as { stream: unknown };
        equal(problem.stream, lease.stream, "stream in the refusal");
      }
      await group.isAt(stream, at(0));
      (await member.commit({ ...lease, offset: at(3) })).expect(200);
      (await member.commit({ ...lease, offset: at(5) })).expect(200);
    },
  },
  {
    title: "§20.3 a commit without an offset moves nothing, and without a valid token is refused",
    async run(site) {
      const { streams, group, member, leases } = await holderOf(site);
      const { stream, token } = leases[0];
      (await member.commit({ stream, token })).expect(200);
      (await member.commit({ stream, token: token + 1000 })).refused(409, "lease_lost");
      await group.isAt(streams[0], at(0));
    },
  },
  {
    title: "§20.3 a commit that names a stream twice is refused",
    async run(site) {
      const { streams, group, member, leases } = await holderOf(site);
      const [one] = leases;
      const answer = await member.commit({ ...one, offset: at(2) }, { ...one, offset: at(1) });
      answer.refused(400, "invalid_request");
      await group.isAt(streams[0], at(0));
    },
  },
];

const transactions: readonly CaseSpec[] = [
  {
    title: "§20.3 in a transaction a commit and its output are one",
    needs: ["transactions"],
    async run(site) {
      const { streams, group, member, leases } = await holderOf(site);
      const output = await site.stream();
      const key = newKey();
      const operations = [
        { commit: { ...member.claimed(leases[0]), offset: at(2) } },
        appendOf(output, "x"),
      ];
      for (let round = 0; round < 2; round += 1) {
        committed(await transact(site, key, operations), [undefined, [output, at(1)]]);
      }
      await group.isAt(streams[0], at(2));
      await output.holds("x");
    },
  },
  {
    title: "§20.3 in a transaction a lost lease refuses the output too",
    needs: ["transactions"],
    async run(site) {
      const { streams, group, member, leases } = await holderOf(site);
      const [lease] = leases;
      const output = await site.stream();
      (await member.release(lease)).expect(204);
      const commit = { commit: { ...member.claimed(lease), offset: at(2) } };
      const answer = await transact(site, newKey(), [appendOf(output, "x"), commit]);
      const problem = refusedAt(answer, 1, 409, "lease_lost");
      equal(problem["streams"], [lease.stream], "streams in the refusal");
      await output.holds("");
      await group.isAt(streams[0], at(0));
    },
  },
  {
    title: "§20.3 in a transaction an offset goes neither back nor beyond the tail",
    needs: ["transactions"],
    async run(site) {
      const { member, leases } = await holderOf(site);
      const [lease] = leases;
      const output = await site.stream();
      const send = (offset: string): ReturnType<typeof transact> =>
        transact(site, newKey(), [
          appendOf(output, "x"),
          { commit: { ...member.claimed(lease), offset } },
        ]);
      (await send(at(2))).expect(200);
      refusedAt(await send(at(1)), 1, 409, "offset_regressed");
      refusedAt(await send(at(4)), 1, 410, "offset_beyond_tail");
      await output.holds("x");
    },
  },
  {
    title: "§20.3 in a transaction an offset inside an append is refused, with the output",
    needs: ["transactions"],
    async run(site) {
      const stream = await site.stream({}, "abc");
      (await stream.append("de")).expect(204);
      const group = await new CaseGroup(site).create({ streams: [pathOf(stream)] });
      const member = await group.join();
      const lease = await member.lease(stream);
      const output = await site.stream();
      const key = newKey();
      const send = (offset: string): ReturnType<typeof transact> =>
        transact(site, key, [
          appendOf(output, "x"),
          { commit: { ...member.claimed(lease), offset } },
        ]);
      refusedAt(await send(at(2)), 1, 400, "invalid_request");
      await output.holds("");
      await group.isAt(stream, at(0));
      (await send(at(3))).expect(200);
      await output.holds("x");
    },
  },
  {
    title: "§19.2 a transaction may expect a lease, and moves an offset by one operation only",
    needs: ["transactions"],
    async run(site) {
      const { member, leases } = await holderOf(site);
      const [lease] = leases;
      const output = await site.stream();
      const expectation = { expect: member.claimed(lease) };
      (await transact(site, newKey(), [appendOf(output, "a"), expectation])).expect(200);
      const commit = { commit: { ...member.claimed(lease), offset: at(1) } };
      refusedAt(await transact(site, newKey(), [commit, commit]), 1, 400, "invalid_request");
      (await member.release(lease)).expect(204);
      const late = await transact(site, newKey(), [appendOf(output, "b"), expectation]);
      refusedAt(late, 1, 409, "lease_lost");
      (await member.post("leave")).expect(204);
      const gone = await transact(site, newKey(), [appendOf(output, "b"), expectation]);
      refusedAt(gone, 1, 409, "member_lost");
      await output.holds("a");
    },
  },
];

export const groupCommitCases: readonly CaseSpec[] = [...commits, ...transactions];
