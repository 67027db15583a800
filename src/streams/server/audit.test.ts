// What is written down of acts and refusals. PROTOCOL.md §22.4.
import { expect, test } from "vitest";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import type { AuditEntry } from "../log.ts";
import { Audit, REFUSALS_PER_SECOND_MAX } from "./audit.ts";
import type { Exchange, ServerAnswer } from "./exchange.ts";

function open() {
  const clock = createVirtualClock(Date.UTC(2026, 0, 1));
  const entries: AuditEntry[] = [];
  const audit = new Audit(clock, (entry) => entries.push(entry));
  const look = (method: string, path: string, answer: ServerAnswer, closes = false): void => {
    const exchange: Exchange = {
      method,
      path,
      query: "",
      baseUrl: "http://localhost",
      authority: "localhost",
      header: (name) => (closes && name === "stream-closed" ? "true" : undefined),
      hasBody: false,
      body: () => Promise.resolve(new Uint8Array()),
      onAbort: () => undefined,
    };
    audit.look(exchange, answer, () => ({ requestId: "r", identity: "shop" }));
  };
  return { clock, entries, look };
}

const answerOf = (status: number, code?: string): ServerAnswer => ({
  status,
  headers: {},
  ...(code === undefined ? {} : { code: code as "not_allowed" }),
});

test.each([
  ["PUT", "/v1/stream/a", 201, { act: "stream.create", target: "/v1/stream/a", outcome: "done" }],
  ["PUT", "/v1/stream/a", 200, undefined],
  ["DELETE", "/v1/stream/a%20b", 204, { act: "stream.delete", target: "/v1/stream/a b" }],
  ["DELETE", "/v1/stream/a", 403, { act: "stream.delete", outcome: "refused", status: 403 }],
  ["DELETE", "/v1/stream/a", 503, { act: "stream.delete", outcome: "failed" }],
  ["PUT", "/_hapax/groups/g", 201, { act: "group.create", target: "g" }],
  ["DELETE", "/_hapax/groups/g", 204, { act: "group.delete", target: "g" }],
  ["GET", "/v1/stream/a", 200, undefined],
  ["GET", "/v1/stream/a", 404, undefined],
  ["GET", "/v1/stream/a", 401, { act: "access", target: "GET /v1/stream/a", outcome: "refused" }],
  ["POST", "/v1/stream/a", 403, { act: "access", target: "POST /v1/stream/a" }],
  ["POST", "/v1/stream/a", 409, undefined],
] as const)("%s %s answered %i is written as %j", (method, path, status, expected) => {
  const { entries, look } = open();
  look(method, path, answerOf(status));
  if (expected === undefined) expect(entries).toEqual([]);
  else expect(entries).toMatchObject([{ ...expected, identity: "shop", requestId: "r" }]);
});

test("an act under a key is written once, also if its answer is repeated", () => {
  const { entries, look } = open();
  look("DELETE", "/v1/stream/a", answerOf(204));
  look("DELETE", "/v1/stream/a", { status: 204, headers: { "Idempotency-Replayed": "true" } });
  expect(entries).toHaveLength(1);
});

test("a stranger cannot fill the audit log: so many refusals a second, then a count", () => {
  const { clock, entries, look } = open();
  for (let at = 0; at < 1000; at += 1) look("GET", "/v1/stream/a", answerOf(401));
  expect(entries).toHaveLength(REFUSALS_PER_SECOND_MAX);
  // What was done is never left out.
  look("DELETE", "/v1/stream/a", answerOf(204));
  expect(entries).toHaveLength(REFUSALS_PER_SECOND_MAX + 1);
  clock.advance(1000);
  expect(entries.at(-1)).toMatchObject({
    act: "access",
    outcome: "refused",
    details: { omitted: 1000 - REFUSALS_PER_SECOND_MAX },
  });
  look("GET", "/v1/stream/a", answerOf(401));
  expect(entries.at(-1)).toMatchObject({ target: "GET /v1/stream/a" });
});
