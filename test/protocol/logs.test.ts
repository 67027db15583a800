// One line for each request, when wanted. PROTOCOL.md §22.3.
import { expect, test } from "vitest";
import { startNodeServer } from "../../src/streams/runtimes/node.ts";
import type { LogEntry } from "../../src/streams/log.ts";

async function linesFor(options: object, hasFastLane: boolean): Promise<readonly LogEntry[]> {
  const lines: LogEntry[] = [];
  const log = (entry: LogEntry): void => {
    if (entry.event === "request") lines.push(entry);
  };
  const server = await startNodeServer({
    store: "memory",
    port: 0,
    log,
    hasFastLane,
    onAudit: () => undefined,
    ...options,
  });
  const url = `${server.url}/v1/stream/a`;
  const headers = { "content-type": "text/plain", "x-request-id": "mine" };
  await fetch(url, { method: "PUT", headers });
  await fetch(url, { method: "POST", headers, body: "12345" });
  await (await fetch(`${url}?offset=-1&hapax-signature=secret`)).text();
  await fetch(`${server.url}/v1/stream/missing`);
  await server.stop();
  return lines;
}

const ALL = [
  { method: "PUT", status: 201, requestId: "mine" },
  { method: "POST", status: 204, bytesIn: 5, bytesOut: 0, requestId: "mine" },
  { method: "GET", status: 200, bytesOut: 5 },
  { method: "GET", status: 404, level: "warn", code: "stream_not_found" },
];

test.each([
  [{ logRequests: "all" }, ALL],
  [{ logRequests: "errors" }, ALL.slice(3)],
  [{ logRequests: "none" }, []],
  [{ logRequests: "all", logSample: 0 }, ALL.slice(3)],
] as const)("with %j these requests have a line: %j", async (options, expected) => {
  for (const hasFastLane of [true, false]) {
    const lines = await linesFor(options, hasFastLane);
    expect(lines).toHaveLength(expected.length);
    expect(lines).toMatchObject(expected);
    expect(JSON.stringify(lines)).not.toContain("secret");
    for (const { ms, route } of lines) {
      expect(ms).toBeGreaterThanOrEqual(0);
      expect(route).toBe("/{stream...}");
    }
  }
});
