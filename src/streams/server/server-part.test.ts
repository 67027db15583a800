// What a server is made without it says: at its start where an option needs it. PROTOCOL.md §12.14.
import { describe, expect, test } from "vitest";
import { createServerOnFetch, type FetchServerOptions } from "../runtimes/fetch-server.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { access, logs, registries, retention, testFaults } from "./optional-parts.ts";
import type { ServerPart } from "./server-part.ts";

type Given = Omit<FetchServerOptions, "store">;

const start = (given: Given, ...parts: readonly ServerPart[]) =>
  createServerOnFetch({ address: "127.0.0.1", ...given }, { store: openMemoryStore(), parts });

const NEEDING: readonly (readonly [option: string, part: ServerPart, given: Given])[] = [
  ["authorize", access, { authorize: () => ({ refused: "missing" }) }],
  ["quotas", access, { quotas: { requestsMax: 1 } }],
  ["log", logs, { log: () => undefined }],
  ["onAudit", logs, { onAudit: () => undefined }],
  ["tracer", logs, { tracer: { start: () => ({ traceparent: undefined, end: () => undefined }) } }],
  ["retentionSeconds", retention, { retentionSeconds: 60 }],
  ["retentionBytes", retention, { retentionBytes: 60 }],
  ["registry", registries, { registry: true }],
  ["testFaults", testFaults, { testFaults: true }],
];

describe("options that need a part", () => {
  test.each(NEEDING)("%s is refused without it, by its name", async (option, part, given) => {
    expect(() => start(given)).toThrow(`\`${part.name}\``);
    expect(() => start(given)).toThrow(option);
    await start(given, part).stop();
  });

  test("without a part, nothing is asked and nothing is written", async () => {
    const server = start({});
    const request = new Request("http://127.0.0.1/v1/stream/s", { method: "PUT" });
    const answer = await server.fetch(request);
    expect(answer.status).toBe(201);
    expect(answer.headers.get("X-Request-Id")).toMatch(/^.{8,}-1$/);
    await server.stop();
  });
});
