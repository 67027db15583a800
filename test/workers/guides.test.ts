// The Workers of the guides run in a real workerd, and their objects are taken away between the calls.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { requirePart } from "../client/runtimes-kit.ts";
import { allBlocks, root } from "../kits/documents.ts";
import { type ObjectsHost, startObjects, whyNoWorkerd } from "../kits/workerd-objects.ts";

const TIME_MS = 120_000;
const blocks = allBlocks.filter(({ info }) => info.endsWith("(a Worker)"));
const classesOf = (body: string): readonly string[] =>
  [...body.matchAll(/^export class (\w+)/gm)].map(([, name = ""]) => name);
const classes = blocks.flatMap(({ body }) => classesOf(body));
const reason = whyNoWorkerd();
let folder = "";
let host: ObjectsHost | undefined;

/** The guides' own classes, which a test calls by `fetch`, and whose bindings have capital letters. */
function wrapped(): string {
  const imports = blocks.map((_, at) => `import * as guide${at} from "./guide${at}.mjs";`);
  const exported = blocks.flatMap(({ body }, at) =>
    classesOf(body).map((name) => `export const ${name} = callable(guide${at}.${name});`),
  );
  const door = blocks.findIndex(({ body }) => body.includes("export default"));
  return `${imports.join("\n")}
const named = (env) => ({
  ...env,
  ...Object.fromEntries(Object.entries(env).map(([name, value]) => [name.toUpperCase(), value])),
});
const callable = (Base) => class extends Base {
  constructor(ctx, env) { super(ctx, named(env)); }
  async fetch(request) {
    if (super.fetch !== undefined) return super.fetch(request);
    const [method, ...args] = await request.json();
    return Response.json((await this[method](...args)) ?? null);
  }
};
${exported.join("\n")}
export const entrypoint = { fetch: (request, env) => guide${door}.default.fetch(request, named(env)) };
`;
}

beforeAll(async () => {
  if (reason !== undefined) return;
  // A script without types; this is the part of it that is used.
  const prepare = (await import(new URL("../../scripts/prepare.mjs", import.meta.url).href)) as {
    buildIfNeeded: () => Promise<void>;
  };
  await prepare.buildIfNeeded();
  // Below the repository, so that `hapax` is what was built here.
  mkdirSync(join(root, "coverage"), { recursive: true });
  folder = mkdtempSync(join(root, "coverage", "guides-"));
  for (const [at, { body }] of blocks.entries())
    writeFileSync(join(folder, `guide${at}.mjs`), body);
  writeFileSync(join(folder, "worker.mjs"), wrapped());
  const source = pathToFileURL(join(folder, "worker.mjs"));
  host = await startObjects({ source, classes, texts: { TOKEN: "secret" } });
}, TIME_MS);

afterAll(async () => {
  await host?.stop();
  if (folder !== "") rmSync(folder, { recursive: true, force: true });
});

test("the guides have these Workers", () => {
  const expected = "Account Bank Counter Feed Orders Shop Streams Trial";
  expect(classes.toSorted().join(" ")).toBe(expected);
});

describe("in workerd", () => {
  /** Calls a method of an object. */
  const call = <T>(type: string, name: string, method: string, ...args: unknown[]): Promise<T> =>
    running()
      .object(type, name)
      .json<T>("/", [method, ...args]);

  function running(): ObjectsHost {
    if (host === undefined) throw new Error("workerd has not started");
    return host;
  }

  /** Asks until the answer is the one; alarms take their time. */
  async function until<T>(expected: T, ask: () => Promise<T>): Promise<void> {
    const wanted = JSON.stringify(expected);
    for (;;) {
      if (JSON.stringify(await ask()) === wanted) return;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  const inWorkerd = (title: string, run: () => Promise<void>): void => {
    test(title, { timeout: TIME_MS }, async (context) => {
      requirePart(context, host, reason ?? "workerd has not started");
      await run();
    });
  };

  inWorkerd("the counter adds once, over eviction, abort and SIGKILL", async () => {
    const add = (id: string, amount: number) => call("Counter", "c", "add", id, amount);
    const counter = running().object("Counter", "c");
    expect(await add("a", 5)).toMatchObject({ result: 5, isDuplicate: false });
    await counter.evict();
    expect(await add("a", 5)).toMatchObject({ result: 5, isDuplicate: true });
    await counter.abort();
    expect(await add("b", 2)).toMatchObject({ result: 7, isDuplicate: false });
    await running().restart();
    expect(await add("b", 2)).toMatchObject({ result: 7, isDuplicate: true });
  });

  inWorkerd(
    "1: an order that is sent three times at once, and again after an eviction, is paid once",
    async () => {
      const pay = (): Promise<{ result: string }> => call("Orders", "o", "pay", "order-1", 250);
      const all = await Promise.all([pay(), pay(), pay()]);
      await running().evictAll();
      for (const { result } of [...all, await pay()]) expect(result).toBe("receipt for 250");
    },
  );

  inWorkerd(
    "2: messages are stored in order, a gap waits, and a duplicate is acknowledged again",
    async () => {
      const receive = (n: number) => call("Feed", "f", "receive", n, { price: n * 10 });
      expect(await receive(1)).toEqual({ kind: "done", last: 1 });
      expect(await receive(3)).toEqual({ kind: "early", last: 1 });
      expect(await receive(2)).toMatchObject({ kind: "done" });
      await running().object("Feed", "f").evict();
      expect(await receive(2)).toMatchObject({ kind: "duplicate" });
      expect(await receive(4)).toEqual({ kind: "done", last: 4 });
    },
  );

  inWorkerd(
    "3: an order of several steps ends whole, and starting it again changes nothing",
    async () => {
      const order = () => call("Shop", "s", "order", "order-1", { item: "teapot", cents: 900 });
      await order();
      await running().object("Shop", "s").evict();
      await order();
      const steps = ["reserved teapot", "charged 900", "shipped teapot"];
      await until(steps, () => call("Shop", "s", "notes"));
    },
  );

  inWorkerd(
    "4: a transfer between objects is booked once on both sides, also over SIGKILL",
    async () => {
      const transfer = (id: string) => call("Account", "ann", "transfer", id, "bob", 100);
      await transfer("t1");
      await transfer("t2");
      await running().restart();
      await transfer("t2");
      await until(200, () => call("Account", "bob", "balance"));
      expect(await call("Account", "ann", "balance")).toBe(-200);
    },
  );

  inWorkerd("5: an alarm that fires again counts once", async () => {
    await call("Trial", "t", "begin", Date.now());
    await running().object("Trial", "t").evict();
    await until(1, () => call("Trial", "t", "ended"));
    await call("Trial", "t", "alarm");
    expect(await call("Trial", "t", "ended")).toBe(1);
  });

  inWorkerd(
    "streams behind the door: a token is needed, a retry is stored once, and all of it survives",
    async () => {
      const url = `${running().url}/v1/stream/acme/orders`;
      const headers = { Authorization: "Bearer secret", "Content-Type": "application/json" };
      expect((await fetch(url)).status).toBe(401);
      expect((await fetch(url, { method: "PUT", headers })).status).toBe(201);
      const keyed = { ...headers, "Idempotency-Key": '"order-1"' };
      for (let attempt = 0; attempt < 2; attempt += 1) {
        const answer = await fetch(url, { method: "POST", headers: keyed, body: '{"id":1}' });
        expect(answer.status).toBe(204);
        await running().evictAll();
      }
      await running().restart();
      const read = await fetch(`${url}?offset=-1`, { headers });
      expect(await read.text()).toBe('[{"id":1}]');
    },
  );

  inWorkerd("streams behind the door: a Worker without its token refuses everything", async () => {
    const source = pathToFileURL(join(folder, "worker.mjs"));
    const bare = await startObjects({ source, classes });
    try {
      for (const token of ["undefined", "null", ""]) {
        const headers = { Authorization: `Bearer ${token}` };
        const answer = await fetch(`${bare.url}/v1/stream/acme/s`, { method: "PUT", headers });
        expect([token, answer.status]).toEqual([token, 401]);
      }
    } finally {
      await bare.stop();
    }
  });
});
