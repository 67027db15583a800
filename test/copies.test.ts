// `hapax copy` of streams: between servers, and to and from lines of JSON. GUARANTEES.md, G146.
import { createHash } from "node:crypto";
import { appendFile, mkdtemp, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type NodeServer, startNodeServer } from "../src/streams/runtimes/node.ts";
import { hapax, type Result, type World } from "./kits/cli-harness.ts";

let source: NodeServer;
let target: NodeServer;
let folder: string;

beforeEach(async () => {
  source = await startNodeServer({ store: "memory", port: 0 });
  target = await startNodeServer({ store: "memory", port: 0 });
  folder = await mkdtemp(join(tmpdir(), "hapax-copies-"));
});

afterEach(async () => {
  await Promise.all([source.stop(), target.stop(), rm(folder, { recursive: true })]);
});

const at = (server: NodeServer, name: string): string => `${server.url}/v1/stream/${name}`;

async function put(
  server: NodeServer,
  name: string,
  headers: Readonly<Record<string, string>> = { "Content-Type": "application/json" },
): Promise<void> {
  expect((await fetch(at(server, name), { method: "PUT", headers })).status).toBe(201);
}

async function post(
  server: NodeServer,
  name: string,
  body: string | Uint8Array<ArrayBuffer>,
  type = "application/json",
  more: Readonly<Record<string, string>> = {},
): Promise<void> {
  const headers = { "Content-Type": type, ...more };
  expect((await fetch(at(server, name), { method: "POST", headers, body })).status).toBe(204);
}

/** All bytes, page by page; a page of records without its brackets. */
async function bytesOf(server: NodeServer, name: string): Promise<string> {
  const pieces: Buffer[] = [];
  for (let offset = "-1", isDone = false; !isDone;) {
    const answer = await fetch(`${at(server, name)}?offset=${offset}`);
    const body = Buffer.from(await answer.arrayBuffer());
    expect(answer.status).toBe(200);
    const isJson = answer.headers.get("content-type") === "application/json";
    pieces.push(isJson ? Buffer.concat([body.subarray(1, -1), Buffer.from(",")]) : body);
    offset = answer.headers.get("stream-next-offset") ?? "";
    isDone = answer.headers.get("stream-up-to-date") === "true";
  }
  return createHash("sha256").update(Buffer.concat(pieces)).digest("hex");
}

const headOf = async (server: NodeServer, name: string): Promise<Headers> =>
  (await fetch(at(server, name), { method: "HEAD" })).headers;

const copy = (from: string, to: string, world: World = {}, ...more: string[]): Promise<Result> =>
  hapax(["copy", from, to, "--retry-seconds", "0", ...more], world);

/** A record that fills most of a page. */
const large = (letter: string): string => JSON.stringify(letter.repeat(700 * 1024));

/** Fails every request from the nth on: before it is sent, or when its answer is there. */
function killedAt(nth: number, isAnswered: boolean): { fetch: typeof fetch; count: () => number } {
  let count = 0;
  return {
    count: () => count,
    fetch: async (input, init) => {
      count += 1;
      if (count < nth || (count === nth && isAnswered)) {
        const answer = await fetch(input, init);
        if (count < nth) return answer;
        await answer.arrayBuffer();
      }
      throw new TypeError("the process was killed");
    },
  };
}

test("G146 a copy that is killed at any request is continued, and no byte is copied twice", async () => {
  await put(source, "orders");
  for (const letter of ["a", "b", "c"]) await post(source, "orders", large(letter));
  await post(source, "orders", '{"n":1.0}', "application/json", { "Stream-Closed": "true" });
  const wanted = await bytesOf(source, "orders");
  for (const isAnswered of [false, true]) {
    for (let nth = 1; ; nth += 1) {
      const name = `orders-${String(nth)}-${String(isAnswered)}`;
      const killed = killedAt(nth, isAnswered);
      const first = await copy(at(source, "orders"), at(target, name), killed);
      if (first.code === 0) {
        expect(nth).toBeGreaterThan(15);
        break;
      }
      const second = await copy(at(source, "orders"), at(target, name));
      expect(second).toMatchObject({ code: 0 });
      expect(second.stdout).toContain(`closed, equal on both sides: SHA-256 `);
      expect(await bytesOf(target, name)).toBe(wanted);
      expect((await headOf(target, name)).get("stream-closed")).toBe("true");
    }
  }
});

test("G146 of two runs at once, one of them thought dead, each byte is stored by one", async () => {
  await put(source, "orders");
  for (const letter of ["a", "b", "c"]) await post(source, "orders", large(letter));
  const wanted = await bytesOf(source, "orders");
  // The nth append of the first run arrives when the second run is through.
  for (const nth of [1, 2, 3]) {
    const name = `orders-${String(nth)}`;
    let posts = 0;
    const delayed: typeof fetch = async (input, init) => {
      if (init?.method === "POST" && (posts += 1) === nth) {
        expect(await copy(at(source, "orders"), at(target, name))).toMatchObject({ code: 0 });
      }
      return fetch(input, init);
    };
    const first = await copy(at(source, "orders"), at(target, name), { fetch: delayed });
    expect(first).toMatchObject({ code: 0 });
    expect(await bytesOf(target, name)).toBe(wanted);
  }
});

test("G146 two runs at once with other borders between their appends store each byte once", async () => {
  await put(source, "orders");
  await post(source, "orders", "[1]");
  // The second run has read more than the first one when the append of the first one arrives.
  let isFirst = true;
  let land = (): void => {};
  const landed = new Promise<void>((resolve) => (land = resolve));
  let second: Promise<Result> | undefined;
  const held: typeof fetch = async (input, init) => {
    if (init?.method === "POST") await landed;
    return fetch(input, init);
  };
  const growing: typeof fetch = async (input, init) => {
    if (init?.method !== "POST" || !isFirst) return fetch(input, init);
    isFirst = false;
    await post(source, "orders", "[2]");
    let read = (): void => {};
    const hasRead = new Promise<void>((resolve) => (read = resolve));
    const watched: typeof fetch = (where, how) => {
      if (how?.method === "POST") read();
      return held(where, how);
    };
    second = copy(at(source, "orders"), at(target, "orders"), { fetch: watched });
    await hasRead;
    const answer = await fetch(input, init);
    land();
    return answer;
  };
  const first = await copy(at(source, "orders"), at(target, "orders"), { fetch: growing });
  for (const result of [first, await second]) expect(result).toMatchObject({ code: 0 });
  expect(await (await fetch(at(target, "orders"))).text()).toBe("[1,2]");
});

test("G146 a target that this copy has not made, or that another writer has written to, is refused", async () => {
  await put(source, "orders");
  await post(source, "orders", "[1,2]");
  const from = at(source, "orders");
  await put(target, "other");
  await post(target, "other", "[9]");
  expect(await copy(from, at(target, "other"))).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("is there already: it was not made by this copy"),
  });
  expect(await copy(from, at(target, "mine"))).toMatchObject({ code: 0 });
  await post(target, "mine", "[3]");
  await post(source, "orders", "[4]");
  expect(await copy(from, at(target, "mine"))).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("has other data too: it was not made by this copy"),
  });
  await put(target, "text", { "Content-Type": "text/plain" });
  expect((await copy(from, at(target, "text"))).stderr).toContain("with other options");
  // The stream of another life at the path of the source is another source.
  await copy(from, at(target, "life"));
  await fetch(from, { method: "DELETE" });
  await put(source, "orders");
  await post(source, "orders", "[5]");
  expect((await copy(from, at(target, "life"))).stderr).toContain("not made by this copy");
  expect(await copy(from, at(target, "free"))).toMatchObject({ code: 0 });
  expect(await (await fetch(at(target, "free"))).text()).toBe("[5]");
});

test("all streams go to another server with their type, expiry, retention and close, and again costs nothing", async () => {
  const expires = new Date(Date.now() + 3_600_000).toISOString();
  await put(source, "a/json", { "Content-Type": "application/json", "Stream-TTL": "3600" });
  await put(source, "a/text", { "Content-Type": "text/plain", "Stream-Expires-At": expires });
  await put(source, "a/bytes", { "Stream-Retention": "bytes=1000000", "Stream-Key-Window": "60" });
  await put(source, "a/empty", { "Content-Type": "text/plain", "Stream-Closed": "true" });
  await put(source, "b");
  await post(source, "a/json", '[1.0, [2], "caf\u00e9"]');
  await post(source, "a/text", "one\r\ntwo \u{1f600}", "text/plain");
  await post(source, "a/bytes", Uint8Array.of(0, 255, 13, 10), "application/octet-stream");
  const first = await copy(source.url, target.url, {}, "--prefix", "a/");
  expect(first).toMatchObject({ code: 0, stderr: "" });
  for (const name of ["a/json", "a/text", "a/bytes", "a/empty"]) {
    expect(await bytesOf(target, name), name).toBe(await bytesOf(source, name));
    for (const header of ["type", "length"].map((word) => `content-${word}`)) {
      expect((await headOf(target, name)).get(header)).toBe(
        (await headOf(source, name)).get(header),
      );
    }
    for (const header of [
      "ttl",
      "expires-at",
      "retention",
      "closed",
      "key-window",
      "next-offset",
    ]) {
      const one = (await headOf(source, name)).get(`stream-${header}`);
      expect((await headOf(target, name)).get(`stream-${header}`), `${name} ${header}`).toBe(one);
    }
  }
  expect((await fetch(at(target, "b"))).status).toBe(404);
  await post(source, "a/json", "[3]");
  const again = await copy(source.url, target.url, {}, "--json");
  expect(again.code).toBe(0);
  const reports = again.stdout
    .trim()
    .split("\n")
    .map((line): unknown => JSON.parse(line));
  expect(reports).toContainEqual(
    expect.objectContaining({ stream: "/v1/stream/a/json", bytes: 2 }),
  );
  expect(reports).toContainEqual(
    expect.objectContaining({ stream: "/v1/stream/a/text", bytes: 0 }),
  );
  expect(await (await fetch(at(target, "a/json"))).text()).toBe('[1.0,[2],"caf\u00e9",3]');
});

test("registries of a whole server are left out, so that a copy can be continued", async () => {
  const servers = [];
  for (const _ of [1, 2]) {
    servers.push(await startNodeServer({ store: "memory", port: 0, registry: true }));
  }
  const [from, to] = servers;
  if (from === undefined || to === undefined) throw new Error("no servers");
  try {
    for (const name of ["__registry__", "orders"]) await put(from, name);
    await post(from, "orders", "1");
    const first = await copy(from.url, to.url);
    expect(first.code).toBe(0);
    expect(first.stderr).toContain("/v1/stream/__registry__ is left out");
    await post(from, "orders", "2");
    expect((await copy(from.url, to.url)).code).toBe(0);
    const file = join(folder, "all.jsonl");
    expect((await copy(from.url, file)).code).toBe(0);
    await put(to, "__registry__");
    await fetch(at(to, "orders"), { method: "DELETE" });
    expect((await copy(file, to.url)).code).toBe(0);
    expect((await copy(file, to.url)).code).toBe(0);
    expect(await bytesOf(to, "orders")).toBe(await bytesOf(from, "orders"));
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
});

test("a changelog is copied without its rule, and the command says so", async () => {
  const rule = { "Content-Type": "application/json", "Stream-Compact-Key": "id, lag=5" };
  await put(source, "log", rule);
  await post(source, "log", '{"id":"a"}');
  const first = await copy(source.url, target.url);
  expect(first.code).toBe(0);
  expect(first.stderr).toContain("/v1/stream/log is a changelog (id, lag=5)");
  expect(first.stderr).toContain("hapax compaction");
  expect((await headOf(target, "log")).get("stream-compact-key")).toBe(null);
  const again = await copy(source.url, target.url, {}, "--json");
  expect(JSON.parse(again.stdout)).toMatchObject({ compactKey: "id, lag=5" });
});

test("--follow copies what is appended until a signal, and compares", async () => {
  for (const name of ["one", "two"]) await put(source, name);
  for (const [from, to] of [
    [at(source, "one"), at(target, "one")],
    [source.url, target.url],
  ] as const) {
    await post(source, "one", "[1]");
    let stop = (): void => {};
    const running = copy(
      from,
      to,
      { onReady: (send) => (stop = () => send("SIGTERM")) },
      "--follow",
    );
    const before = await (await fetch(at(source, "one"))).text();
    await expect.poll(async () => (await fetch(at(target, "one"))).text()).toBe(before);
    await post(source, "one", '[{"late":true}]');
    const wanted = await (await fetch(at(source, "one"))).text();
    await expect.poll(async () => (await fetch(at(target, "one"))).text()).toBe(wanted);
    stop();
    const result = await running;
    expect(result).toMatchObject({ code: 0 });
    expect(result.stdout).toContain("equal on both sides");
  }
  expect((await fetch(at(target, "two"))).status).toBe(200);
});

test("a source that was trimmed is copied from where it begins, and a gap is refused", async () => {
  await put(source, "log");
  for (const n of [1, 2, 3]) await post(source, "log", `[${String(n)}]`);
  const trim = (before: number) =>
    fetch(
      `${source.url}/_hapax/trim?stream=/v1/stream/log&before=0000000000000000_${String(before).padStart(16, "0")}`,
      { method: "POST" },
    );
  expect((await trim(2)).status).toBe(204);
  expect(await copy(at(source, "log"), at(target, "log"))).toMatchObject({ code: 0 });
  expect(await (await fetch(at(target, "log"))).text()).toBe("[2,3]");
  await post(source, "log", "[4]");
  await post(source, "log", "[5]");
  expect((await trim(8)).status).toBe(204);
  const gap = await copy(at(source, "log"), at(target, "log"));
  expect(gap).toMatchObject({ code: 1, stderr: expect.stringContaining("the target ends at") });
  expect(await (await fetch(at(target, "log"))).text()).toBe("[2,3]");
});

async function fill(): Promise<void> {
  await put(source, "json");
  await put(source, "bytes", { "Content-Type": "application/octet-stream" });
  await put(source, "empty", { "Content-Type": "text/plain", "Stream-TTL": "60" });
  await post(source, "json", '[1.0, {"a": "caf\u00e9"}]');
  await post(source, "json", '{\n  "broken": "line"\r\n}');
  for (const letter of ["a", "b"]) await post(source, "json", large(letter));
  await post(source, "bytes", Uint8Array.of(0, 10, 255), "application/octet-stream");
}

test("G146 streams go through a file of lines, and every byte comes back", async () => {
  await fill();
  const file = join(folder, "all.jsonl");
  expect(await copy(source.url, file)).toMatchObject({ code: 0 });
  const text = await readFile(file, "utf8");
  expect(text).toContain('{"value":{"a": "caf\u00e9"}}\n');
  expect(text).toContain(',"base64":"AAr/"}\n');
  const back = await copy(file, target.url);
  expect(back).toMatchObject({ code: 0 });
  for (const name of ["json", "bytes", "empty"]) {
    expect(await bytesOf(target, name), name).toBe(await bytesOf(source, name));
  }
  expect((await headOf(target, "empty")).get("stream-ttl")).toBe("60");
  // Again, with more, in a section of its own; and a file that a direct copy goes on from.
  await post(source, "json", '["more"]', "application/json", { "Stream-Closed": "true" });
  expect(await copy(source.url, file)).toMatchObject({ code: 0 });
  expect(await readFile(file, "utf8")).toContain('"continued":true');
  for (let run = 0; run < 2; run += 1) {
    expect(await copy(file, target.url)).toMatchObject({ code: 0 });
    expect(await bytesOf(target, "json")).toBe(await bytesOf(source, "json"));
  }
  expect((await headOf(target, "json")).get("stream-closed")).toBe("true");
  expect((await copy(at(source, "json"), at(target, "json"))).stdout).toContain("nothing new");
  const out = await copy(at(source, "bytes"), "-");
  expect(out.stdout).toBe(text.slice(0, text.indexOf("\n", text.indexOf('{"end"')) + 1));
  expect(out.stderr).toContain("copied /v1/stream/bytes");
});

test("G146 a file that was cut at any byte is continued to the same streams", async () => {
  await put(source, "s");
  for (const body of ['[1,{"a":2}]', '["\u00e9"]']) await post(source, "s", body);
  const whole = join(folder, "whole.jsonl");
  await copy(at(source, "s"), whole);
  await post(source, "s", "[3]");
  await copy(at(source, "s"), whole);
  const bytes = await readFile(whole);
  const step = Number(process.env["HAPAX_PLANTED"] === undefined) * 14 + 1;
  for (let length = 0; length < bytes.length; length += step) {
    const file = join(folder, `cut-${String(length)}.jsonl`);
    await writeFile(file, bytes);
    await truncate(file, length);
    expect(await copy(at(source, "s"), file), String(length)).toMatchObject({ code: 0 });
    expect(await copy(file, at(target, `s-${String(length)}`))).toMatchObject({ code: 0 });
    expect(await bytesOf(target, `s-${String(length)}`)).toBe(await bytesOf(source, "s"));
  }
});

test("a file that was cut, changed, or is of something else is refused before anything is stored", async () => {
  await put(source, "s");
  await post(source, "s", "[11,12]");
  const file = join(folder, "s.jsonl");
  await copy(at(source, "s"), file);
  const text = await readFile(file, "utf8");
  for (const [name, changed, word] of [
    ["cut", text.slice(0, text.indexOf('{"end"')), "is cut"],
    ["changed", text.replace("11", "10"), "was changed"],
    ["foreign", '{"id":1}\n', "not a line that hapax copy writes"],
    ["empty", "", "is cut"],
  ] as const) {
    const other = join(folder, `${name}.jsonl`);
    await writeFile(other, changed);
    const result = await copy(other, at(target, name));
    expect(result, name).toMatchObject({ code: 1, stderr: expect.stringContaining(word) });
    expect((await fetch(at(target, name))).status).toBe(404);
  }
  await appendFile(join(folder, "foreign.jsonl"), "x");
  const foreign = await copy(at(source, "s"), join(folder, "foreign.jsonl"));
  expect(foreign).toMatchObject({ code: 1, stderr: expect.stringContaining("line 1 of") });
});

test("G146 data that differs in the target is found at the end", async () => {
  await put(source, "s");
  await post(source, "s", "[11,12]");
  const altered: typeof fetch = async (input, init) => {
    const answer = await fetch(input, init);
    if (init?.method !== "GET" || !(input as string).startsWith(target.url)) return answer;
    const text = (await answer.text()).replace("12", "13");
    return new Response(text, { status: answer.status, headers: answer.headers });
  };
  const result = await copy(at(source, "s"), at(target, "s"), { fetch: altered });
  expect(result).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("differs in the target"),
  });
});

test("places that do not fit are refused with what fits", async () => {
  for (const [words, text] of [
    [[folder, target.url], "start a server on it"],
    [["a.jsonl", "b.jsonl"], "a copy needs a server on one side"],
    [[source.url, at(target, "x")], "all streams cannot be copied into one"],
    [["-", at(target, "x")], "give a file"],
    [
      [at(source, "none"), at(target, "x"), "--prefix", "a"],
      "--prefix is for copies of a whole server",
    ],
  ] as const) {
    expect(await hapax(["copy", ...words])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(text),
    });
  }
  expect(await copy(at(source, "none"), at(target, "x"))).toMatchObject({ code: 4 });
});
