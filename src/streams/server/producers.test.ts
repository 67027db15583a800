// What the cases for any server cannot see of producers: the audit, forks, soft deletion. PROTOCOL.md §12.4, §12.5
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { AuditEntry } from "../log.ts";
import { auditLogEntry } from "./log-entries.ts";
import { jsonLine, textLine } from "./log-writer.ts";
import { type NodeServer, startNodeServer } from "../runtimes/node.ts";

let server: NodeServer;
const audit: AuditEntry[] = [];
const resets = (): AuditEntry[] => audit.filter(({ act }) => act === "producer.reset");
let paths = 0;

beforeAll(async () => {
  server = await startNodeServer({
    store: "memory",
    port: 0,
    onAudit: (entry) => audit.push(entry),
  });
});

afterAll(async () => {
  await server.stop();
});

beforeEach(() => {
  audit.length = 0;
});

type Headers = Readonly<Record<string, string>>;

async function send(
  method: string,
  path: string,
  headers: Headers = {},
  body?: string,
): Promise<{ readonly status: number; readonly code: unknown; readonly value: unknown }> {
  const init = body === undefined ? { method, headers } : { method, headers, body };
  const response = await fetch(server.url + path, init);
  const text = await response.text();
  const value: unknown = text === "" ? undefined : JSON.parse(text);
  const code = typeof value === "object" && value !== null && "code" in value ? value.code : "";
  return { status: response.status, code, value };
}

async function fresh(name = `a-${(paths += 1)}`): Promise<string> {
  const path = `/v1/stream/producers/${name}`;
  expect((await send("PUT", path, { "Content-Type": "text/plain" })).status).toBe(201);
  return path;
}

function append(path: string, id: string, epoch: number, sequence: number): Promise<unknown> {
  const numbers = { "Producer-Epoch": String(epoch), "Producer-Seq": String(sequence) };
  const headers = { "Content-Type": "text/plain", "Producer-Id": id, ...numbers };
  return send("POST", path, headers, "a");
}

const list = (path: string): ReturnType<typeof send> =>
  send("GET", `/_hapax/producers?stream=${encodeURIComponent(path)}`);
const reset = (path: string, id: string): ReturnType<typeof send> =>
  send("DELETE", `/_hapax/producers/${encodeURIComponent(id)}?stream=${encodeURIComponent(path)}`);

test("a reset writes one line with stream, producer, epoch and sequence before it", async () => {
  const path = await fresh("audited");
  await append(path, "p", 7, 0);
  await append(path, "p", 7, 1);
  expect((await reset(path, "p")).status).toBe(204);
  expect(resets()).toMatchObject([
    {
      act: "producer.reset",
      outcome: "done",
      target: "p",
      details: { stream: "/v1/stream/producers/audited", epoch: 7, sequence: 1 },
    },
  ]);
});

test("a reset that is refused is written with the reason", async () => {
  const path = await fresh();
  await append(path, "p", 0, 0);
  for (const [target, id] of [
    [path, "q"],
    [`${path}-none`, "p"],
  ] as const) {
    expect((await reset(target, id)).status).toBe(404);
  }
  expect((await send("DELETE", "/_hapax/producers/p")).status).toBe(400);
  expect((await send("DELETE", "/_hapax/producers/%FF?stream=/a")).status).toBe(400);
  expect((await send("DELETE", "/_hapax/producers/?stream=/a")).status).toBe(400);
  const long = "p".repeat(257);
  expect((await send("DELETE", `/_hapax/producers/${long}?stream=/a`)).status).toBe(400);
  expect(resets().map(({ outcome, code }) => [outcome, code])).toEqual([
    ["refused", "producer_not_found"],
    ["refused", "stream_not_found"],
    ...Array.from({ length: 4 }, () => ["refused", "invalid_request"]),
  ]);
});

test("no id and no path can forge a line of the audit, or steer the terminal that shows it", async () => {
  const path = await fresh("line%E2%80%A8%22");
  const id = 'p" epoch=0 sequence=0 \u0085\u009b2J';
  await append(path, id, 3, 0);
  const encoded = encodeURIComponent(decodeURIComponent(path));
  const target = `/_hapax/producers/${encodeURIComponent(id)}?stream=${encoded}`;
  expect((await send("DELETE", target)).status).toBe(204);
  const [entry] = resets();
  expect(entry).toMatchObject({ target: id, details: { epoch: 3 } });
  if (entry === undefined) throw new Error("nothing was written");
  for (const line of [jsonLine(entry), textLine(auditLogEntry(entry))]) {
    expect(line).toMatch(/^[ -~]*\n$/);
    expect(line).toContain(String.raw`p\" epoch=0 sequence=0 \u0085\u009b2J`);
    expect(line).toContain(String.raw`/v1/stream/producers/line\u2028\"`);
  }
});

test("a softly deleted stream is gone for its producers too", async () => {
  const path = await fresh();
  await append(path, "p", 0, 0);
  expect((await send("PUT", `${path}-fork`, { "Stream-Forked-From": path })).status).toBe(201);
  expect((await send("DELETE", path)).status).toBe(204);
  expect([(await list(path)).status, (await list(path)).code]).toEqual([410, "stream_gone"]);
  expect([(await reset(path, "p")).status, (await reset(path, "p")).code]).toEqual([
    410,
    "stream_gone",
  ]);
  expect((await list(`${path}-fork`)).value).toEqual({ producers: [] });
});

test("a path in the query is decoded once and has the grammar of a stream's", async () => {
  for (const [stream, status] of [
    ["a", 400],
    ["/a//b", 400],
    ["/../a", 400],
    ["/a%00", 400],
    ["/%FF", 400],
    ["", 400],
    ["/none", 404],
    ["%2Fnone", 404],
    ["/none%2541", 404],
    ["/_hapax/health", 404],
  ] as const) {
    const answer = await send("GET", `/_hapax/producers?stream=${stream}`);
    expect([stream, answer.status]).toEqual([stream, status]);
  }
  const [plain, escaped] = [await fresh("twice-A"), await fresh("twice-%2541")];
  await append(escaped, "p", 0, 0);
  expect((await list(plain)).value).toEqual({ producers: [] });
  const { value } = await list("/v1/stream/producers/twice-%41");
  expect(value).toMatchObject({ producers: [{ producerId: "p" }] });
});

test("ids are listed in the order of their code units, page after page", async () => {
  const path = await fresh();
  const ids = ["b", "a", "B", "a b", "ab", "\u00e9", "0", "~"];
  for (const id of ids) await append(path, id, 0, 0);
  const seen: string[] = [];
  for (let after = ""; ;) {
    const query = `stream=${encodeURIComponent(path)}&limit=3&after=${encodeURIComponent(after)}`;
    const { value } = await send("GET", `/_hapax/producers?${query}`);
    const page = value as { producers: { producerId: string }[]; next?: string };
    seen.push(...page.producers.map(({ producerId }) => producerId));
    if (page.next === undefined) break;
    after = page.next;
  }
  expect(seen).toEqual(ids.toSorted());
});

test("a reset delays no other producer and no append that has not been committed yet", async () => {
  const path = await fresh();
  await append(path, "p", 5, 0);
  const [first] = await Promise.all([
    reset(path, "p"),
    append(path, "q", 0, 0),
    append(path, "q", 0, 0),
  ]);
  expect(first.status).toBe(204);
  const { value } = await list(path);
  expect(value).toMatchObject({ producers: [{ producerId: "q", epoch: 0, seq: 0 }] });
});
