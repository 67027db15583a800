// Sagas over a ledger in Redis: without `tx` steps they are whole, and a `tx` step is refused by its name.
import { describe, expect, test } from "vitest";
import { redisLedger } from "../../src/toolkit/ledgers/redis.ts";
import { createSagas, defineSaga } from "../../src/toolkit/saga.ts";
import { connect, newest, serve } from "../ledgers/redis-kit.ts";

const retry = { attemptsMax: 3, pauseMs: 1, pauseMsMax: 1 };

describe.skipIf(newest === undefined)("sagas over Redis", () => {
  async function newLedger() {
    const server = await serve();
    const ledger = redisLedger(await connect(server));
    await ledger.migrate();
    return { ledger, server };
  }

  /** A provider with keys, and a carrier that can be asked. */
  function shopOf() {
    const log: string[] = [];
    const keys = new Set<string>();
    const once = (key: string, text: string): void => {
      if (!keys.has(key)) log.push(text);
      keys.add(key);
    };
    const order = defineSaga<{ readonly fails: boolean }>("order")
      .call("charge", {
        run: ({ key, identity }) => {
          once(key, `charge ${identity.key}`);
          return { receipt: identity.key };
        },
        undo: ({ key, outcome }) => {
          if (outcome.kind === "done") once(key, `refund ${outcome.result.receipt}`);
        },
        retry,
      })
      .probe("label", {
        run: ({ identity }) => void log.push(`label ${identity.key}`),
        probe: ({ identity }) =>
          log.includes(`label ${identity.key}`)
            ? { kind: "done", result: undefined }
            : { kind: "not_done" },
        undo: ({ identity }) => void log.push(`cancel ${identity.key}`),
        retry,
      })
      .sleep("rest", 1_200)
      .signal("paid")
      .call("send", {
        run: ({ input, identity }) => {
          if (input.fails) throw new RangeError("no such address");
          log.push(`send ${identity.key}`);
        },
        isFinal: (error) => error instanceof RangeError,
      });
    return { log, order };
  }

  test("G53 run to their end, or are undone, with sleeps, signals, two runners and a server that is killed", async () => {
    const { ledger, server } = await newLedger();
    const { log, order } = shopOf();
    const options = { leaseMs: 2_000, everyMs: 20 };
    const runners = [createSagas(ledger, [order], options), createSagas(ledger, [order], options)];
    const [sagas] = runners;
    if (sagas === undefined) throw new Error("there is none");
    const stopping = new AbortController();
    const running = runners.map((one) => one.run(stopping.signal));
    const identityOf = (key: string) => ({ scope: "s", key });
    for (const key of ["a", "b"]) await sagas.start(order, identityOf(key), { fails: key === "b" });
    await expect(sagas.start(order, identityOf("a"), { fails: true })).rejects.toMatchObject({
      code: "key_reused",
    });
    await expect
      .poll(async () => (await sagas.list({ state: "sleeping" })).map(({ key }) => key))
      .toEqual(["a", "b"]);
    // With `appendfsync always` nothing that was answered is lost.
    await server.kill();
    await server.restart();
    for (const key of ["a", "b"]) await sagas.signal({ saga: "order", ...identityOf(key) }, "paid");
    const ended = await Promise.all(
      ["a", "b"].map((key) =>
        sagas.start(order, identityOf(key), { fails: key === "b" }, { waitMs: 30_000 }),
      ),
    );
    expect(ended.map(({ state }) => state)).toEqual(["completed", "undone"]);
    for (const key of ["a", "b"]) {
      const own = log.filter((text) => text.endsWith(` ${key}`)).map((text) => text.slice(0, -2));
      const ending = key === "a" ? ["send"] : ["cancel", "refund"];
      expect(own).toEqual(["charge", "label", ...ending]);
    }
    stopping.abort();
    await Promise.all(running);
  });

  test("SA2 a tx step is refused by its name when the sagas are created", async () => {
    const { ledger } = await newLedger();
    const reserve = defineSaga<string, never>("reserve").tx("shelf", { run: () => 1 });
    expect(() => createSagas(ledger, [reserve])).toThrow(
      expect.objectContaining({
        code: "unsupported",
        message: expect.stringMatching(/ledger=redis .*saga=reserve step=shelf/),
      }),
    );
    const confirm = defineSaga<string, never>("pay").pivot("confirm", { run: () => 1 });
    expect(() => createSagas(ledger, [confirm])).toThrow(/saga=pay step=confirm/);
    const sagas = createSagas(ledger, []);
    expect(() => sagas.in(undefined as never)).toThrow(
      expect.objectContaining({ code: "unsupported" }),
    );
  });
});
