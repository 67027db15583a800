/** Transactions over real sockets, with a bad network between. PROTOCOL.md §19. */

import { afterEach, describe, expect, test } from "vitest";
import { connectServer, TransactionFailure } from "../../src/client/processing.ts";
import type { Connection } from "../../src/client/processing/connection.ts";
import { isHapaxError } from "../../src/base/errors.ts";
import { openFileStore } from "../../src/streams/stores/file.ts";
import { badNetwork, openStage, type ProcessingStage } from "./stage.ts";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [A, B] = ["/v1/stream/a", "/v1/stream/b"] as const;
const TRANSACTIONS = "/_hapax/transactions";

const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

async function stage(...args: Parameters<typeof openStage>): Promise<ProcessingStage> {
  const opened = await openStage(...args);
  closing.push(() => opened.close());
  return opened;
}

async function failureOf(promise: Promise<unknown>): Promise<TransactionFailure> {
  const error: unknown = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error instanceof TransactionFailure) return error;
  throw new Error("there was no failure of a transaction", { cause: error });
}

describe("what a transaction collects", () => {
  test("nothing is sent while the callback runs, nor if it throws, and afterwards it is deaf", async () => {
    const { connect, proxy } = await stage();
    const hapax = connect();
    let kept: { append(stream: string, data: unknown): void } | undefined;
    const thrown = hapax.transaction(async (tx) => {
      kept = tx;
      tx.create(A);
      await Promise.resolve();
      throw new Error("no");
    });
    await expect(thrown).rejects.toThrow("no");
    expect(proxy.requests).toBe(0);
    expect(() => kept?.append(A, 1)).toThrow("has returned");
    const { value, offsets } = await hapax.transaction(() => "nothing asked for");
    expect([value, offsets.size, proxy.requests]).toEqual(["nothing asked for", 0, 0]);
  });

  test("data is stored as it was when it was given", async () => {
    const { connect, direct } = await stage();
    const bytes = new Uint8Array([1, 2]);
    await connect().transaction((tx) => {
      const order = { id: 1 };
      tx.create(A);
      tx.append(A, order);
      order.id = 2;
      tx.create(B, { contentType: "application/octet-stream" });
      tx.append(B, bytes);
      bytes.fill(9);
    });
    expect(await direct.stream(A).read().values()).toEqual([{ id: 1 }]);
    expect([...(await direct.stream(B).read().bytes())]).toEqual([1, 2]);
  });

  test("a thousand appends to two streams are two operations, in their order", async () => {
    const { connect, direct } = await stage();
    const hapax = connect();
    const { offsets } = await hapax.transaction((tx) => {
      for (const stream of [A, B]) tx.create(stream);
      for (let id = 0; id < 2000; id += 1) tx.append(id % 2 === 0 ? A : B, id);
    });
    const values = await direct.stream(A).read<number>().values();
    expect(values).toEqual(Array.from({ length: 1000 }, (_, index) => index * 2));
    expect(offsets.get(A)).toBe((await direct.stream(A).head()).offset);
    // A close between two appends stays between them: the second one is refused, by its own number.
    const failure = await failureOf(
      hapax.transaction((tx) => {
        tx.append(A, 1);
        tx.append(A, 2);
        tx.close(A);
        tx.append(A, 3);
      }),
    );
    expect([failure.code, failure.operation]).toEqual(["stream_closed", 3]);
    expect((await direct.stream(A).head()).isClosed).toBe(false);
  });

  test("text given before the type of its stream is known is stored as text", async () => {
    const { connect, direct } = await stage();
    await direct.stream(A).create({ contentType: "text/plain" });
    await connect().transaction((tx) => {
      tx.append(A, "héllo ");
      tx.append(A, "world");
    });
    expect(await direct.stream(A).read().values()).toEqual(["héllo world"]);
    const failure = await failureOf(
      connect().transaction((tx) => {
        tx.append(A, { no: "text" });
      }),
    );
    expect([failure.code, failure.outcome]).toEqual(["invalid_request", "not_stored"]);
  });
});

describe("the outcome", () => {
  test("a lost answer is settled by the same bytes under the same identity", async () => {
    const seen: Record<string, string | string[] | undefined>[] = [];
    const opened = await stage({
      fateOf: ({ path, headers }) => {
        if (path !== TRANSACTIONS) return {};
        seen.push(headers);
        return seen.length <= 2 ? { harm: "dropAnswers" } : {};
      },
    });
    const hapax = opened.connect();
    const { isDuplicate, offsets } = await hapax.transaction((tx) => {
      tx.create(A);
      tx.append(A, "once");
    });
    expect(isDuplicate).toBe(true);
    expect(await opened.direct.stream(A).read().values()).toEqual(["once"]);
    expect(offsets.get(A)).toBe((await opened.direct.stream(A).head()).offset);
    const identities = seen.map((headers) =>
      ["producer-id", "producer-epoch", "producer-seq"].map((name) => headers[name]).join(),
    );
    expect(identities).toHaveLength(3);
    expect(new Set(identities).size).toBe(1);
  });

  test("an answer that was cut in its body is asked for again", async () => {
    let cuts = 0;
    const { connect, direct } = await stage({
      fateOf: ({ path }) => {
        if (path !== TRANSACTIONS || cuts > 0) return {};
        cuts += 1;
        return { harm: "cutAnswers" };
      },
    });
    const { offsets } = await connect().transaction((tx) => {
      tx.create(A);
      tx.append(A, 1);
    });
    expect(cuts).toBe(1);
    expect(offsets.size).toBe(1);
    expect(await direct.stream(A).read().values()).toEqual([1]);
  });

  test("a refusal names the call and the code, and nothing of the transaction is stored", async () => {
    const { connect, direct } = await stage();
    const hapax = connect();
    await direct.stream(A).create();
    await direct.stream(B).create();
    const { offset } = await direct.stream(A).head();
    await direct.stream(A).append("between");
    const moved = await failureOf(
      hapax.transaction((tx) => {
        tx.append(B, 1);
        tx.expect(A, { offset });
      }),
    );
    expect([moved.code, moved.operation, moved.outcome]).toEqual(["tail_moved", 1, "not_stored"]);
    const present = await failureOf(
      hapax.transaction((tx) => {
        tx.expect(A, { absent: true });
        tx.append(B, 1);
      }),
    );
    expect([present.code, present.operation]).toEqual(["stream_present", 0]);
    expect(await direct.stream(B).read().values()).toEqual([]);
    // The handle goes on.
    await hapax.transaction((tx) => {
      tx.append(B, 2);
    });
    expect(await direct.stream(B).read().values()).toEqual([2]);
  });

  test("who gets no answer in time hears that the outcome is unknown", async () => {
    const { connect, direct } = await stage({
      fateOf: ({ path }) => (path === TRANSACTIONS ? { harm: "dropAnswers" } : {}),
    });
    await direct.stream(A).create();
    const hapax = connect({ retry: { totalMs: 60, pauseMs: 5, pauseMsMax: 20 } });
    const failure = await failureOf(
      hapax.transaction((tx) => {
        tx.append(A, 1);
      }),
    );
    expect([failure.code, failure.outcome]).toEqual(["unreachable", "unknown"]);
    expect(await direct.stream(A).read().values()).toEqual([1]);
  });

  test("a refusal after an attempt without an answer is certain: the late attempt finds the door shut", async () => {
    let attempts = 0;
    const { connect, direct, proxy } = await stage({
      fateOf: ({ path }) => {
        if (path !== TRANSACTIONS) return {};
        attempts += 1;
        return attempts === 1 ? { delayMs: 60_000 } : {};
      },
    });
    await direct.stream(B).create();
    // Refused because a stream is missing, which it need not be when the late attempt arrives.
    const hapax = connect({ timeoutMs: 50, contentType: "application/json" });
    const failure = await failureOf(
      hapax.transaction((tx) => {
        tx.append(A, "late");
        tx.append(B, "late");
      }),
    );
    expect([failure.code, failure.outcome]).toEqual(["stream_not_found", "not_stored"]);
    await direct.stream(A).create();
    await proxy.drain();
    expect(attempts).toBeGreaterThanOrEqual(3);
    expect(await direct.stream(A).read().values()).toEqual([]);
    expect(await direct.stream(B).read().values()).toEqual([]);
  });

  test("an attempt that arrives after the refusal, before the number is used up, is reported as committed", async () => {
    const { direct, server } = await stage();
    await direct.stream(B).create();
    let first: (() => Promise<Response>) | undefined;
    let attempts = 0;
    const hapax = connectServer(server.url, {
      contentType: "application/json",
      retry: { pauseMs: 1, pauseMsMax: 5 },
      fetch: async (input, init) => {
        const send = (): Promise<Response> => fetch(input, init);
        if (!new Request(input).url.endsWith(TRANSACTIONS)) return send();
        attempts += 1;
        if (attempts === 1) {
          first = send;
          throw new TypeError("the network is gone");
        }
        if (attempts === 3) {
          await direct.stream(A).create();
          await first?.();
        }
        return send();
      },
    });
    const { offsets, isDuplicate } = await hapax.transaction((tx) => {
      tx.append(A, "late");
      tx.append(B, "late");
    });
    // The fourth asks for the answer of the first, which the third has found done.
    expect([attempts, offsets.size, isDuplicate]).toEqual([4, 2, true]);
    expect(await direct.stream(A).read().values()).toEqual(["late"]);
    await hapax.transaction((tx) => {
      tx.append(A, "next");
    });
    expect(await direct.stream(A).read().values()).toEqual(["late", "next"]);
  });

  test("a late copy of a refused transaction is never taken for the next one", async () => {
    let attempts = 0;
    const { connect, direct, proxy } = await stage({
      fateOf: ({ path }) => {
        if (path !== TRANSACTIONS) return {};
        attempts += 1;
        return attempts === 1 ? { copyAfterMs: 60_000 } : {};
      },
    });
    const hapax = connect({ contentType: "application/json" });
    const failure = await failureOf(
      hapax.transaction((tx) => {
        tx.append(A, "refused");
      }),
    );
    expect(failure.code).toBe("stream_not_found");
    await direct.stream(A).create();
    await hapax.transaction((tx) => {
      tx.append(A, "next");
    });
    await proxy.drain();
    expect(await direct.stream(A).read().values()).toEqual(["next"]);
  });

  test("a key is one transaction across handles, and never outlived by the retries", async () => {
    const { connect, direct } = await stage();
    await direct.stream(A).create();
    const pay = (cents: number) =>
      connect().transaction(
        (tx) => {
          tx.append(A, { cents });
        },
        { key: "order 17" },
      );
    const [first, second] = [await pay(5), await pay(5)];
    expect([first.isDuplicate, second.isDuplicate]).toEqual([false, true]);
    expect(second.offsets).toEqual(first.offsets);
    expect((await failureOf(pay(6))).code).toBe("key_reused");
    expect(await direct.stream(A).read().values()).toEqual([{ cents: 5 }]);
    const endless = connect({ retry: { totalMs: Infinity } });
    await expect(endless.transaction(() => 1, { key: "k" })).rejects.toMatchObject({
      code: "invalid_options",
    });
    await expect(endless.transaction(() => 1, { key: "ü" })).rejects.toMatchObject({
      code: "invalid_request",
    });
  });

  test("a server without transactions is unsupported, and not a missing stream", async () => {
    const { connect } = await stage({
      fateOf: ({ path }) =>
        path === TRANSACTIONS ? { harm: "refuseRequests", refusal: { status: 404 } } : {},
    });
    const failure = await failureOf(
      connect().transaction((tx) => {
        tx.create(A);
      }),
    );
    expect(failure.code).toBe("unsupported");
  });

  test("a signal gives up with its reason", async () => {
    const { connect } = await stage({ fateOf: () => ({ harm: "silenceRequests" }) });
    const stop = new AbortController();
    const waiting = connect().transaction(
      (tx) => {
        tx.create(A);
      },
      { signal: stop.signal },
    );
    stop.abort(new Error("enough"));
    await expect(waiting).rejects.toThrow("enough");
  });
});

describe("many at once", () => {
  const storm = async ({ connect, direct, proxy }: ProcessingStage): Promise<void> => {
    await direct.stream(A).create();
    await direct.stream(B).create();
    const handles = [connect(), connect()];
    const count = 80;
    let next = 0;
    const write = async (hapax: Connection): Promise<void> => {
      while (next < count) {
        const id = next++;
        const { value, offsets } = await hapax.transaction((tx) => {
          tx.append(A, id);
          tx.append(B, id);
          return id;
        });
        expect([value, offsets.size]).toEqual([id, 2]);
      }
    };
    await Promise.all([...handles, ...handles, ...handles].map(write));
    await proxy.drain();
    const [a, b] = [await direct.stream(A).read().values(), await direct.stream(B).read().values()];
    expect(a).toEqual(b);
    const sorted = a.toSorted((one, other) => Number(one) - Number(other));
    expect(sorted).toEqual(Array.from({ length: count }, (_, id) => id));
    const { counts } = proxy;
    expect(counts.droppedAnswers + counts.cutAnswers + counts.duplicatedRequests).toBeGreaterThan(
      5,
    );
  };

  test("each of 80 transactions happens once on both streams, through a bad network", async () => {
    await storm(await stage(badNetwork(3)));
  });

  test("the same over files, and after they are opened again", async () => {
    const directory = mkdtempSync(join(tmpdir(), "hapax-processing-"));
    closing.push(() => Promise.resolve(rmSync(directory, { recursive: true })));
    const opened = await openStage(badNetwork(4), await openFileStore(directory));
    await storm(opened);
    const before = await opened.direct.stream(A).read().values();
    await opened.close();
    const again = await stage({}, await openFileStore(directory));
    expect(await again.direct.stream(A).read().values()).toEqual(before);
  });

  test("a handle whose transaction was given up goes on under another number", async () => {
    let isSilent = true;
    const { connect, direct } = await stage({
      fateOf: ({ path }) => (path === TRANSACTIONS && isSilent ? { harm: "silenceAnswers" } : {}),
    });
    await direct.stream(A).create();
    const hapax = connect({
      timeoutMs: 200,
      contentType: "application/json",
      retry: { totalMs: 30, pauseMs: 5, pauseMsMax: 10 },
    });
    const append = (id: number) =>
      hapax.transaction((tx) => {
        tx.append(A, id);
      });
    expect((await failureOf(append(1))).outcome).toBe("unknown");
    isSilent = false;
    const { isDuplicate } = await append(2);
    expect(isDuplicate).toBe(false);
    expect(await direct.stream(A).read().values()).toEqual([1, 2]);
    expect(isHapaxError(new TransactionFailure("lease_lost", "x", { outcome: "unknown" }))).toBe(
      true,
    );
  });
});
