// Calls through a real network that loses, cuts and repeats, by processes that are killed: one effect each.
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, test } from "vitest";
import { createIdempotency, type FetchHandler, GLOBAL } from "../../src/toolkit/idempotency.ts";
import { createIdempotentFetch, memoryKeyStore } from "../../src/toolkit/idempotency/fetch.ts";
import { fileKeyStore } from "../../src/toolkit/idempotency/key-file.ts";
import { memoryLedger, type MemoryTransaction } from "../../src/toolkit/ledgers/memory.ts";
import { openFaultProxy } from "../../src/testing/fault-proxy.ts";

const CALLER = fileURLToPath(new URL("caller.mjs", import.meta.url));

/** A server that does the work of a key once, and answers its retries with what it has answered before. */
class Shop {
  /** Operations in the order of their effects. */
  readonly effects: string[] = [];
  readonly keys = new Set<string>();
  requests = 0;
  /** While true, the work is done and nothing is answered. */
  isMute = false;
  #onRequest: () => void = () => undefined;
  readonly #server: Server = createServer((request, response) => {
    const key = String(request.headers["idempotency-key"]);
    let body = "";
    request.setEncoding("utf8").on("data", (text: string) => (body += text));
    request.on("end", () => {
      this.#serve(key, (JSON.parse(body) as { operation: string }).operation, response);
    });
    request.on("error", () => undefined);
  });

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    // A server that listens on a port has an address of this kind.
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Resolves when the next request has had its effect. */
  requested(): Promise<void> {
    return new Promise((resolve) => {
      this.#onRequest = resolve;
    });
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  #serve(key: string, operation: string, response: ServerResponse): void {
    this.requests += 1;
    const isDuplicate = this.keys.has(key);
    if (!isDuplicate) this.effects.push(operation);
    this.keys.add(key);
    this.#onRequest();
    if (this.isMute) return;
    response.writeHead(201, isDuplicate ? { "idempotency-replayed": "true" } : {}).end(operation);
  }
}

const cleanUp: (() => unknown)[] = [];
afterEach(async () => {
  for (const work of cleanUp.splice(0).toReversed()) await work();
});

async function openShop(): Promise<{
  readonly shop: Shop;
  readonly url: string;
  readonly folder: string;
}> {
  const shop = new Shop();
  const url = await shop.listen();
  const folder = mkdtempSync(join(tmpdir(), "hapax-caller-"));
  cleanUp.push(
    () => rmSync(folder, { recursive: true, force: true }),
    () => shop.close(),
  );
  return { shop, url, folder };
}

test("G26 every operation has one effect through a network that loses, cuts, silences and repeats", async () => {
  const { shop, url, folder } = await openShop();
  const proxy = await openFaultProxy(url, {
    seed: 11,
    dropRequests: 0.1,
    dropAnswers: 0.2,
    cutRequests: 0.05,
    cutAnswers: 0.1,
    silenceAnswers: 0.02,
    refuseRequests: 0.05,
    refuseAnswers: 0.1,
    duplicateRequests: 0.2,
    delayRequests: 0.2,
    refusals: [{ status: 503 }, { status: 429, retryAfter: "0" }, { status: 500 }],
  });
  cleanUp.push(() => proxy.close());
  const call = createIdempotentFetch({
    store: fileKeyStore(folder),
    windowMs: 60_000,
    // Long for a machine that does other things as well: attempts that all end early would keep each other busy.
    timeoutMs: 1500,
    retry: { pauseMs: 2, pauseMsMax: 20, attemptsMax: 50 },
  });
  const operations = Array.from({ length: 40 }, (_, at) => `charge ${at}`);
  const waiting = [...operations];
  const lines = Array.from({ length: 4 }, async () => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const response = await call(next, `${proxy.url}/charges`, { json: { operation: next } });
      expect(response.status).toBe(201);
      expect(await response.text()).toBe(next);
      await call.done(next);
    }
  });
  await Promise.all(lines);
  await proxy.drain();
  expect(shop.effects.toSorted()).toEqual(operations.toSorted());
  expect(shop.requests).toBeGreaterThan(operations.length);
  expect(readdirSync(folder)).toEqual([]);
});

describe("a caller of our own middleware", () => {
  function open(handler: FetchHandler<MemoryTransaction>) {
    const idempotency = createIdempotency(memoryLedger(), { scope: GLOBAL, leaseMs: 1000 });
    const heard: number[] = [];
    const call = createIdempotentFetch({
      store: memoryKeyStore(),
      windowMs: 60_000,
      retry: { pauseMs: 5 },
      fetch: async (input, init) => {
        const response = await idempotency.handle(new Request(input, init), handler);
        heard.push(response.status);
        return response;
      },
    });
    return { call, heard };
  }

  test("G26 asks again while the work is running, and gets its answer", async () => {
    let release: () => void = () => undefined;
    const isReleased = new Promise<void>((resolve) => {
      release = resolve;
    });
    let effects = 0;
    const { call, heard } = open(async () => {
      effects += 1;
      await isReleased;
      return new Response("charged", { status: 201 });
    });
    const both = ["a", "b"].map(() => call("charge 17", "http://shop/charges", { json: 17 }));
    while (!heard.includes(409)) await new Promise((resolve) => setImmediate(resolve));
    release();
    const answers = await Promise.all(both);
    expect(await Promise.all(answers.map((answer) => answer.text()))).toEqual([
      "charged",
      "charged",
    ]);
    expect(effects).toBe(1);
    expect(heard.filter((status) => status !== 409)).toEqual([201, 201]);
  });

  test("G26 takes an error that was kept for the answer, and repeats one that was not", async () => {
    let runs = 0;
    const { call, heard } = open(() => {
      runs += 1;
      return new Response("no", { status: runs === 1 ? 429 : 500 });
    });
    const answer = await call("charge 17", "http://shop/charges", { json: 17 });
    expect(answer.status).toBe(500);
    expect(answer.headers.get("idempotency-replayed")).toBe("true");
    expect(heard).toEqual([429, 500, 500]);
    expect(runs).toBe(2);
  });
});

interface Ended {
  readonly output: string;
  readonly signal: NodeJS.Signals | null;
}

function start(options: object): { readonly child: ChildProcess; readonly ended: Promise<Ended> } {
  const child = spawn(process.execPath, [CALLER, JSON.stringify(options)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  cleanUp.push(() => child.kill("SIGKILL"));
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (output += text));
  const ended = new Promise<Ended>((resolve) => {
    child.once("close", (_code, signal) => {
      resolve({ output: output.trim(), signal });
    });
  });
  return { child, ended };
}

describe("a caller that is killed", () => {
  const CASES = [
    { dieAt: "fetch.persisted", effects: 0, when: "its key is kept and nothing was sent" },
    { dieAt: "fetch.answered", effects: 1, when: "it has the answer and has not passed it on" },
  ];
  for (const { dieAt, effects, when } of CASES) {
    test(`G26 when ${when}: its next process makes one effect of it`, async () => {
      const { shop, url, folder } = await openShop();
      const options = { url, folder, operation: "charge 17" };
      const killed = await start({ ...options, dieAt }).ended;
      expect(killed).toEqual({ output: "", signal: "SIGKILL" });
      expect(shop.effects).toHaveLength(effects);
      expect(readdirSync(folder).filter((name) => name.endsWith(".json"))).toHaveLength(1);
      expect(await start(options).ended).toEqual({ output: "201", signal: null });
      expect(shop.effects).toEqual(["charge 17"]);
      expect(shop.keys.size).toBe(1);
    });
  }

  test("G26 when its call has had its effect and is not answered: its next process has no second one", async () => {
    const { shop, url, folder } = await openShop();
    const options = { url, folder, operation: "charge 17" };
    shop.isMute = true;
    const requested = shop.requested();
    const { child, ended } = start(options);
    await requested;
    child.kill("SIGKILL");
    expect((await ended).signal).toBe("SIGKILL");
    shop.isMute = false;
    expect(await start(options).ended).toEqual({ output: "201", signal: null });
    expect(shop.effects).toEqual(["charge 17"]);
    expect(shop.requests).toBe(2);
  });

  test("G26 two processes that begin the same operation at once have one effect", async () => {
    const { shop, url, folder } = await openShop();
    const options = { url, folder, operation: "charge 17" };
    const both = await Promise.all([start(options).ended, start(options).ended]);
    expect(both.map(({ output }) => output)).toEqual(["201", "201"]);
    expect(shop.effects).toEqual(["charge 17"]);
  });
});
