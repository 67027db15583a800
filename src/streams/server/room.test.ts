// The options that limit the memory of a server: each holds, and no other limit is reached first.
import { afterEach, describe, expect, test } from "vitest";
import { keyClaim } from "../../testing/commands.ts";
import { openGatedStore } from "../../../test/kits/gated-store.ts";
import { openStage, type ServerStage } from "../../../test/kits/server-stage.ts";
import { turn, watch } from "../../../test/kits/watch.ts";
import { LIMITS, SMALL_LIMITS } from "../../protocol/limits.ts";
import type { Operation } from "../core/transaction-state.ts";
import type { StreamName } from "../core/types.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { resolveServerOptions, type ServerOptions } from "./options.ts";

const MIB = 1024 * 1024;
const TEXT = { "content-type": "text/plain" };
const stages: ServerStage[] = [];
afterEach(async () => {
  for (const { server } of stages.splice(0)) await server.close();
});

function open(...parts: Parameters<typeof openStage>): ServerStage {
  const stage = openStage(...parts);
  stages.push(stage);
  return stage;
}

describe("pendingBytesMax", () => {
  test("bytes that wait for the store are bounded by the option, and the next write is refused", async () => {
    const inner = openMemoryStore();
    const { ask } = open({}, inner);
    await ask("PUT", "/v1/stream/a", TEXT);
    const store = openGatedStore(inner);
    const { ask: send } = open({ pendingBytesMax: 100, bodyBytesMax: 100 }, store);
    const waiting = [50, 50].map((length) =>
      watch(send("POST", "/v1/stream/a", TEXT, "x".repeat(length))),
    );
    await turn();
    const refused = await send("POST", "/v1/stream/a", TEXT, "x");
    expect([refused.status, waiting.map(({ isWaiting }) => isWaiting)]).toEqual([
      429,
      [true, true],
    ]);
    store.open();
    await turn();
    expect(waiting.map(({ value }) => value?.status)).toEqual([204, 204]);
    expect((await send("POST", "/v1/stream/a", TEXT, "x")).status).toBe(204);
  });
});

describe("heldBytesMax", () => {
  test("appends that wait for their predecessors are bounded by the option, and the next one is answered at once", async () => {
    const { ask, server } = open({ heldBytesMax: 10 });
    await ask("PUT", "/v1/stream/a", TEXT);
    const send = (sequence: number, text: string) =>
      watch(
        ask(
          "POST",
          "/v1/stream/a",
          {
            ...TEXT,
            "producer-id": "p",
            "producer-epoch": "0",
            "producer-seq": String(sequence),
            prefer: "wait=5",
          },
          text,
        ),
      );
    const held = [send(1, "12345"), send(2, "67890")];
    await turn();
    const beyond = send(3, "a");
    await turn();
    expect([...held, beyond].map(({ isWaiting }) => isWaiting)).toEqual([true, true, false]);
    expect([beyond.value?.status, server.engine.heldAppends]).toEqual([409, 2]);
    send(0, "");
    await turn();
  });
});

describe("outcomeBytesMax", () => {
  // 1,000 operations on a path of 1,000 bytes: the largest answer that a transaction can have, about 1 MiB.
  const NAME = `/${"n".repeat(999)}` as StreamName;
  const operations: readonly Operation[] = Array.from({ length: 1000 }, () => ({
    kind: "append",
    stream: NAME,
    contentType: "text/plain",
    data: Uint8Array.of(120),
    closes: false,
  }));

  async function transact(options: ServerOptions): Promise<(number: number) => Promise<string>> {
    const { ask, server } = open(options);
    await ask("PUT", NAME, TEXT);
    return async (number) => {
      const claim = keyClaim(`key ${String(number)}`, "body");
      const request = () => ({ identity: { kind: "key" as const, claim }, operations, bytes: 0 });
      const result = await server.engine.transactions.commit(request, "wake");
      if (result.kind !== "committed") return result.kind;
      const known = result.operations === undefined ? "answer forgotten" : "answer known";
      return result.isDuplicate ? `duplicate, ${known}` : `new, ${known}`;
    };
  }

  test("answers of transactions are bounded by the option: old ones are forgotten, and stay duplicates", async () => {
    const small = await transact({ outcomeBytesMax: 4 * MIB });
    const large = await transact({});
    for (let number = 0; number < 8; number += 1) {
      expect(await small(number)).toBe("new, answer known");
      expect(await large(number)).toBe("new, answer known");
      // Half of the room is always kept, so the newest answer is known.
      expect(await small(number)).toBe("duplicate, answer known");
    }
    expect(await small(0)).toBe("duplicate, answer forgotten");
    expect(await large(0)).toBe("duplicate, answer known");
  });
});

describe("options of memory", () => {
  test.each(["bodiesBytesMax", "pendingBytesMax"] as const)(
    "%s below bodyBytesMax is refused: an allowed body would never fit",
    (name) => {
      const refused = `${name}=9 is less than bodyBytesMax=10`;
      expect(() => resolveServerOptions({ bodyBytesMax: 10, [name]: 9 })).toThrow(refused);
      expect(resolveServerOptions({ bodyBytesMax: 10, [name]: 10 })[name]).toBe(10);
    },
  );

  test.each([
    ["bodiesBytesMax", 0],
    ["pendingBytesMax", 1.5],
    ["heldBytesMax", 0],
    ["outcomeBytesMax", 4 * MIB - 1],
  ] as const)("%s=%d is refused", (name, value) => {
    expect(() => resolveServerOptions({ [name]: value })).toThrow(
      `${name}=${String(value)} is not`,
    );
  });

  test("the small limits are valid, none is above its usual value, and full at once they are 44 MiB", () => {
    const options = resolveServerOptions(SMALL_LIMITS);
    for (const [name, value] of Object.entries(SMALL_LIMITS)) {
      // The names of a constant.
      const limit = LIMITS[name as keyof typeof SMALL_LIMITS];
      expect([name, value < limit]).toEqual([name, true]);
    }
    const { bodiesBytesMax, pendingBytesMax, heldBytesMax, answersBytesMax } = options;
    const tellingBytesMax = Math.min(pendingBytesMax, LIMITS.tellingBytesMax);
    const all = bodiesBytesMax + pendingBytesMax + heldBytesMax + answersBytesMax + tellingBytesMax;
    expect(all).toBe(44 * MIB);
  });
});
