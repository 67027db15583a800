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
  const expected = "Streams";
  expect(classes.toSorted().join(" ")).toBe(expected);
});

describe("in workerd", () => {
  function running(): ObjectsHost {
    if (host === undefined) throw new Error("workerd has not started");
    return host;
  }

  const inWorkerd = (title: string, run: () => Promise<void>): void => {
    test(title, { timeout: TIME_MS }, async (context) => {
      requirePart(context, host, reason ?? "workerd has not started");
      await run();
    });
  };

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
});
