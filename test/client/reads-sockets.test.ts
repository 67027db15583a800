// Readers over real sockets that are cut at random bytes, and over servers that are restarted. PROTOCOL.md §7
import { mkdtemp, rm } from "node:fs/promises";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { Caller } from "../../src/client/attempt.ts";
import { type FollowOptions, startFollowing } from "../../src/client/follow.ts";
import { resolveClientOptions } from "../../src/client/options.ts";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { openFileStore } from "../../src/streams/stores/file.ts";
import { createSeededRandom } from "../../src/testing/seeded-random.ts";

const PATH = "/v1/stream/s";
const endings: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const end of endings.splice(0).toReversed()) await end();
});

/** A wire that is cut after a random number of bytes of the server's answers, until it was cut so often. */
class Scissors {
  cuts = 0;
  cutsMax = 0;
  target = "";
  readonly #random;
  readonly #server: Server;
  readonly #clients = new Set<Socket>();
  #isAsking = false;
  #onAsking: () => void = () => undefined;

  constructor(seed: number) {
    this.#random = createSeededRandom(seed);
    this.#server = createServer((client) => {
      this.#clients.add(client);
      client.on("close", () => this.#clients.delete(client));
      const upstream = connect(Number(new URL(this.target).port), "127.0.0.1");
      // Mostly within headers and small pages, now and then far into a large and compressed one.
      const bytesMax = this.#random.below(8) === 0 ? 20_000 : 2_000;
      let left = this.cuts < this.cutsMax ? this.#random.below(bytesMax) : Infinity;
      const isReset = this.#random.below(2) === 0;
      client.on("data", (bytes) => {
        this.#isAsking = true;
        this.#onAsking();
        upstream.write(bytes);
      });
      upstream.on("data", (bytes: Buffer) => {
        this.#isAsking = false;
        if (client.destroyed) return;
        client.write(bytes.subarray(0, left));
        left -= bytes.length;
        if (left > 0) return;
        this.cuts += 1;
        upstream.destroy();
        if (isReset) client.resetAndDestroy();
        else client.end();
      });
      for (const [one, other] of [
        [client, upstream],
        [upstream, client],
      ] as const) {
        one.on("error", () => other.destroy());
        one.on("close", () => other.destroySoon());
      }
    });
  }

  /** Until a request has been sent that has no answer yet. */
  async asking(): Promise<void> {
    if (this.#isAsking) return;
    await new Promise<void>((resolve) => {
      this.#onAsking = resolve;
    });
  }

  /** Until a connection that is open now has been closed. */
  async closing(): Promise<void> {
    await Promise.race(
      [...this.#clients].map((client) => new Promise((resolve) => client.once("close", resolve))),
    );
  }

  async open(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    endings.push(async () => {
      const closed = new Promise((resolve) => this.#server.close(resolve));
      for (const client of this.#clients) client.destroy();
      await closed;
    });
    return `http://127.0.0.1:${String((this.#server.address() as AddressInfo).port)}${PATH}`;
  }
}

/** A reader that can be waited for. */
class Reader {
  readonly records: unknown[] = [];
  readonly finished: Promise<void>;
  #wake: () => void = () => undefined;

  constructor(url: string, options: FollowOptions) {
    const caller = new Caller(resolveClientOptions({ retry: { pauseMs: 1, pauseMsMax: 2 } }, url));
    this.finished = this.#run(caller, url, options);
    this.finished.catch(() => {
      this.#wake();
    });
  }

  async #run(caller: Caller, url: string, options: FollowOptions): Promise<void> {
    for await (const { value } of startFollowing(caller, url, options)) {
      this.records.push(value);
      this.#wake();
    }
  }

  /** Until it has so many bytes of values, or has failed. */
  async has(isThere: () => boolean): Promise<void> {
    const failed = this.finished.then(() => true);
    while (!isThere()) {
      const woken = new Promise<boolean>((resolve) => {
        this.#wake = () => {
          resolve(false);
        };
      });
      if (await Promise.race([woken, failed])) return;
    }
  }
}

const sizeOf = (records: readonly unknown[]): number =>
  records.reduce(
    (sum: number, one) => sum + (typeof one === "object" ? (one as Uint8Array).length : 1),
    0,
  );

/** Text that does not compress well; now and then there is much of it. */
function noise(index: number): string {
  const random = createSeededRandom(index);
  return `é${Array.from({ length: index % 10 === 0 ? 100 : 1 }, () => random.id()).join("")}`;
}

const kinds = {
  JSON: {
    contentType: "application/json",
    body: (index: number) => JSON.stringify([index, noise(index)]),
    whole: (count: number) =>
      Array.from({ length: count }, (_, index) => [index, noise(index)]).flat(),
    read: (records: readonly unknown[]): unknown => records,
    units: 2,
  },
  text: {
    contentType: "text/plain",
    body: (index: number) => `line ${String(index)}\r\n`,
    whole: (count: number) =>
      Array.from({ length: count }, (_, index) => `line ${String(index)}\r\n`).join(""),
    read: (records: readonly unknown[]): unknown => records.join(""),
    units: 0,
  },
  binary: {
    contentType: "application/octet-stream",
    body: (index: number) => Buffer.alloc(50, index % 256),
    whole: (count: number) =>
      Buffer.concat(
        Array.from({ length: count }, (_, index) => Buffer.alloc(50, index % 256)),
      ).toString("hex"),
    read: (records: readonly unknown[]): unknown =>
      Buffer.concat(records as Uint8Array[]).toString("hex"),
    units: 50,
  },
} as const;

test.each([
  ["JSON", "sse"],
  ["JSON", "auto"],
  ["text", "auto"],
  ["binary", "sse"],
  ["binary", "long-poll"],
] as const)(
  "across 200 sockets cut at random bytes each record comes once and in order: %s by %s",
  async (name, live) => {
    const kind = kinds[name];
    const server = await startNodeServer({ store: "memory", port: 0 });
    endings.push(() => server.stop());
    const wire = new Scissors(17);
    wire.target = server.url;
    wire.cutsMax = 200;
    const headers = { "content-type": kind.contentType };
    await fetch(server.url + PATH, { method: "PUT", headers });
    const reader = new Reader(await wire.open(), { live });
    let count = 0;
    while (wire.cuts < wire.cutsMax) {
      for (let burst = 0; burst < 3; burst += 1) {
        const body = kind.body(count);
        const answer = await fetch(server.url + PATH, { method: "POST", headers, body });
        expect(answer.status).toBe(204);
        count += 1;
      }
      const wanted = count * kind.units;
      await reader.has(() =>
        kind.units === 0
          ? reader.records.join("").includes(`line ${String(count - 1)}\r\n`)
          : sizeOf(reader.records) >= wanted,
      );
    }
    await fetch(server.url + PATH, { method: "POST", headers: { "stream-closed": "true" } });
    await reader.finished;
    expect(kind.read(reader.records)).toEqual(kind.whole(count));
    expect(wire.cuts).toBeGreaterThanOrEqual(200);
  },
);

test.each(["sse", "long-poll"] as const)(
  "across restarts of the server each record comes once and in order, by %s",
  async (live) => {
    const directory = await mkdtemp(join(tmpdir(), "hapax-reads-"));
    endings.push(() => rm(directory, { recursive: true }));
    const start = async (): Promise<NodeServer> =>
      startNodeServer({ port: 0, store: await openFileStore(directory, { durability: "os" }) });
    let server = await start();
    endings.push(() => server.stop());
    const wire = new Scissors(1);
    wire.target = server.url;
    const headers = { "content-type": "application/json" };
    await fetch(server.url + PATH, { method: "PUT", headers });
    const reader = new Reader(await wire.open(), { live });
    let count = 0;
    for (let restart = 0; restart < 5; restart += 1) {
      for (let index = 0; index < 20; index += 1) {
        await fetch(server.url + PATH, { method: "POST", headers, body: String(count) });
        count += 1;
        // Some restarts come while the reader has everything, others while it is behind.
        if (restart % 2 === 0) await reader.has(() => reader.records.length === count);
      }
      await server.stop();
      server = await start();
      wire.target = server.url;
    }
    await reader.has(() => reader.records.length === count);
    await fetch(server.url + PATH, { method: "POST", headers: { "stream-closed": "true" } });
    await reader.finished;
    expect(reader.records).toEqual(Array.from({ length: 100 }, (_, index) => index));
  },
);

test.each(["sse", "long-poll"] as const)(
  "a signal ends a reader by %s that waits, and closes its socket",
  async (live) => {
    const server = await startNodeServer({ store: "memory", port: 0 });
    endings.push(() => server.stop());
    const wire = new Scissors(1);
    wire.target = server.url;
    const headers = { "content-type": "application/json" };
    await fetch(server.url + PATH, { method: "PUT", headers });
    const stop = new AbortController();
    const reader = new Reader(await wire.open(), { live, signal: stop.signal });
    for (let count = 1; count <= 3; count += 1) {
      await fetch(server.url + PATH, { method: "POST", headers, body: String(count) });
      await reader.has(() => reader.records.length === count);
    }
    // Events come on a request that has its answer; a long-poll waits for it.
    if (live === "long-poll") await wire.asking();
    const closing = wire.closing();
    stop.abort(new Error("enough"));
    await expect(reader.finished).rejects.toThrow("enough");
    await closing;
  },
);
