/** Cases of acts of administration under a key: PROTOCOL.md §12.7. */

import {
  at,
  byEpoch,
  byKey,
  type CaseSpec,
  type CaseAnswer,
  equal,
  type HeaderMap,
  type Site,
} from "./extension-case-kit.ts";
import { CaseGroup } from "./extension-case-transactions.ts";

const REPLAYED = { "Idempotency-Replayed": "true" };

const reset = (site: Site, group: CaseGroup, to: string, headers: HeaderMap): Promise<CaseAnswer> =>
  site.request("POST", `${pathOf(group)}/reset`, { headers, body: JSON.stringify({ to }) });

const pathOf = (group: CaseGroup): string => `/_hapax/groups/${encodeURIComponent(group.name)}`;

export const actCases: readonly CaseSpec[] = [
  {
    title: "§12.7 a reset of a group under a key is done once, and its retry has the same answer",
    needs: ["groups"],
    async run(site) {
      const stream = await site.stream({}, "abc");
      const group = await new CaseGroup(site).create();
      const key = byKey(`reset-of-${group.name}`);
      const first = (await reset(site, group, "beginning", key)).expect(200);
      const member = await group.join();
      const lease = await member.lease(stream);
      (await member.commit({ ...lease, offset: at(3) })).expect(200);
      const again = (await reset(site, group, "beginning", key)).expect(200, REPLAYED);
      equal(again.json(), first.json(), "the answer to the retry");
      // The lease is unchanged, and so is the offset: another commit of it counts.
      (await member.commit({ ...lease, offset: at(3) })).expect(200);
      (await reset(site, group, "tail", key)).refused(422, "key_reused");
      (await reset(site, group, "beginning", byKey(`another-of-${group.name}`))).expect(200, {
        "Idempotency-Replayed": undefined,
      });
      (await member.commit({ ...lease, offset: at(3) })).refused(409, "lease_lost");
    },
  },
  {
    title: "§12.7 a refused act does not consume its key",
    needs: ["groups"],
    async run(site) {
      const group = new CaseGroup(site);
      const key = byKey(`early-reset-of-${group.name}`);
      (await reset(site, group, "beginning", key)).refused(404, "group_not_found");
      await site.stream();
      await group.create();
      (await reset(site, group, "beginning", key)).expect(200, {
        "Idempotency-Replayed": undefined,
      });
    },
  },
  {
    title: "§12.7 a deletion of a group under a key leaves the group alone that is made after it",
    needs: ["groups"],
    async run(site) {
      await site.stream();
      const group = await new CaseGroup(site).create();
      const headers = byKey(`deletion-of-${group.name}`);
      (await site.request("DELETE", pathOf(group), { headers })).expect(204);
      await group.create();
      (await site.request("DELETE", pathOf(group), { headers })).expect(204, REPLAYED);
      (await group.get()).expect(200);
    },
  },
  {
    title: "§12.7 a deletion of a stream under a key leaves the stream alone that is made after it",
    needs: ["keys"],
    async run(site) {
      const stream = await site.stream();
      const key = byKey(`deletion-of-${stream.path}`);
      (await stream.delete(key)).expect(204);
      (await stream.create()).expect(201);
      (await stream.delete(key)).expect(204, REPLAYED);
      (await stream.head()).expect(200);
      (await stream.delete()).expect(204);
      (await stream.delete(byKey(`second-of-${stream.path}`))).expect(404);
    },
  },
  {
    title: "§12.7 a reset of a producer under a key is done once, also if it has written since",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", byEpoch("p", 4, 0));
      const headers = byKey(`reset-of-p-of-${stream.path}`);
      const send = (): Promise<CaseAnswer> =>
        site.request("DELETE", `/_hapax/producers/p?${stream.query}`, { headers });
      (await send()).expect(204);
      await stream.append("b", byEpoch("p", 0, 0));
      (await send()).expect(204, REPLAYED);
      // The producer is still known: this is a duplicate, and not a new append.
      (await stream.append("b", byEpoch("p", 0, 0))).expect(204);
      await stream.holds("ab");
    },
  },
];
