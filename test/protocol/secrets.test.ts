// No secret of a request is in anything that the server writes about it. PROTOCOL.md §22.3, §22.4
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { AuditEntry, LogEntry } from "../../src/streams/log.ts";
import { startNodeServer } from "../../src/streams/runtimes/node.ts";
import { jsonLine, textLine } from "../../src/streams/server/log-writer.ts";
import type { SpanStart, Tracer } from "../../src/streams/tracer.ts";
import { openFileStore } from "../../src/streams/stores/file.ts";

const SECRET = "s3cr3t-c4n4ry";

test("G52 secrets in headers, queries and bodies are in no log, audit, span, metric, error or file name", async () => {
  const directory = mkdtempSync(join(tmpdir(), "hapax-secrets-"));
  const logged: LogEntry[] = [];
  const audited: AuditEntry[] = [];
  const spans: unknown[] = [];
  const tracer: Tracer = {
    start(span: SpanStart) {
      spans.push(span);
      return { traceparent: undefined, end: (...ended) => spans.push(ended) };
    },
  };
  const store = await openFileStore(directory);
  const server = await startNodeServer({
    store,
    port: 0,
    log: (entry) => logged.push(entry),
    onAudit: (entry) => audited.push(entry),
    logRequests: "all",
    tracer,
  });
  const answers: string[] = [];
  const headers = {
    Authorization: `Bearer ${SECRET}`,
    Cookie: `session=${SECRET}`,
    "Proxy-Authorization": `Basic ${SECRET}`,
    "X-Api-Key": SECRET,
    "Content-Type": "text/plain",
    "X-Request-Id": `"${SECRET}"`,
    traceparent: SECRET,
    tracestate: `a=${SECRET}`,
  };
  const query = `hapax-signature=${SECRET}&${SECRET}&offset=-1&token=${SECRET}`;
  for (const method of ["PUT", "POST", "GET", "PATCH", "DELETE", "DELETE"]) {
    for (const path of ["/v1/stream/a", "/_hapax/groups/g", "/_hapax/nothing", "/healthz"]) {
      const body = method === "POST" || method === "PATCH" ? SECRET : null;
      const answer = await fetch(`${server.url}${path}?${query}`, { method, headers, body });
      const text = await answer.text();
      const isData = method === "GET" && path === "/v1/stream/a";
      answers.push(JSON.stringify([...answer.headers]), isData ? "" : text);
    }
  }
  answers.push(await (await fetch(`${server.url}/metrics`)).text());
  await server.stop();
  const names = readdirSync(directory);
  const files = names.filter((name) => !/^(journal|spare|snapshot)-/.test(name));
  for (const name of files) answers.push(readFileSync(join(directory, name), "latin1"));
  rmSync(directory, { recursive: true, force: true });
  const requests = logged.filter(({ event }) => event === "request");
  // Each place was written to, or the search below would find nothing in any case.
  expect([requests.length >= 24, audited.length > 2, spans.length >= 48]).toEqual([
    true,
    true,
    true,
  ]);
  expect(requests[0]?.query).toBe("***&***&offset=-1&***");
  const lines = logged.flatMap((entry) => [jsonLine(entry), textLine(entry)]);
  const all = [...lines, ...audited.map(jsonLine), JSON.stringify(spans), ...answers, ...names];
  expect(all.filter((text) => text.includes(SECRET))).toEqual([]);
});

test("G52 a log or a tracer that throws or rejects changes no answer", async () => {
  const fail = (): never => {
    throw new Error("full");
  };
  for (const log of [fail, async () => fail()]) {
    const options = { store: "memory", port: 0, logRequests: "all", log } as const;
    const server = await startNodeServer({ ...options, onAudit: fail, tracer: { start: fail } });
    const answer = await fetch(`${server.url}/v1/stream/a`, { method: "PUT" });
    expect(answer.status).toBe(201);
    await server.stop();
  }
});
