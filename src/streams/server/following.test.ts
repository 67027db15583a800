// Rights to very many streams are worked out in slices, and once. PROTOCOL.md §21.2
import { expect, test } from "vitest";
import { openStage, textOf } from "../../../test/kits/server-stage.ts";
import { turn, watch } from "../../../test/kits/watch.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import { IdentityAccess } from "../access/access.ts";
import type { Identity } from "../access/identity.ts";
import type { ServerAnswer } from "./exchange.ts";

const STREAMS = Array.from(
  { length: LIMITS.groupStreamsMax },
  (_, index) => `/v1/stream/shop/${index}/x`,
);
/** A pattern in whose middle is a star: every name has to be cut into its segments. */
const identity: Identity = {
  name: "guest",
  grants: [{ actions: ["consume"], streams: ["/v1/stream/shop/*/x"] }],
};

test("G34 the rights to a group of 10,000 streams are worked out in slices, and once", async () => {
  const stage = openStage({}, undefined, () => identity);
  const ask = (method: string, target: string, body?: unknown): Promise<ServerAnswer> =>
    stage.ask(method, target, { "content-type": "application/json" }, JSON.stringify(body) ?? "");
  /** How often the answer let others have a turn. */
  const turnsOf = async (answer: Promise<ServerAnswer>): Promise<number> => {
    const watched = watch(answer);
    for (let turns = 0; ; turns += 1) {
      await turn();
      if (!watched.isWaiting) return turns;
      stage.clock.advance(1);
    }
  };
  const group = "/_hapax/groups/g";
  const made = ask("PUT", group, { streams: STREAMS });
  expect(await turnsOf(made)).toBeGreaterThan(0);
  expect((await made).status, textOf(await made)).toBe(201);
  const joined = ask("POST", `${group}/join`, { name: "m" });
  expect(await turnsOf(joined)).toBe(0);
  expect((await joined).status).toBe(201);
});

test("an answer about one group, action or caller is not used for another", () => {
  const access = new IdentityAccess({
    name: "guest",
    grants: [{ actions: ["consume"], streams: ["/v1/stream/shop/*/x"], groups: ["mine"] }],
  });
  const followed = { streams: STREAMS };
  const steps = access.followingSteps("consume", { group: "mine" }, followed);
  expect([...(steps ?? [])]).toHaveLength(STREAMS.length);
  expect(access.followingSteps("consume", { group: "mine" }, followed)).toBeUndefined();
  expect(access.mayFollow("consume", { group: "mine" }, followed)).toBe(true);
  expect(access.mayFollow("consume", { group: "other" }, followed)).toBe(false);
  expect(access.mayFollow("admin", { group: "mine" }, followed)).toBe(false);
  expect(access.mayFollow("consume", { group: "mine" }, { streams: [...STREAMS, "/a"] })).toBe(
    false,
  );
});
