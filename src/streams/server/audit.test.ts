// What is written down of acts and refusals. PROTOCOL.md §22.4.
import { expect, test } from "vitest";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import type { AuditEntry } from "../log.ts";
import {
  Audit,
  AUDIT_TEXT_MAX,
  IDENTITIES_APART_MAX,
  REFUSALS_PER_SECOND_MAX as REFUSALS_MAX,
} from "./audit.ts";
import { jsonLine } from "./log-writer.ts";
import type { Exchange, ServerAnswer } from "./exchange.ts";

function open() {
  const clock = createVirtualClock(Date.UTC(2026, 0, 1));
  const entries: AuditEntry[] = [];
  const audit = new Audit(clock, (entry) => entries.push(entry));
  const look = (
    method: string,
    path: string,
    answer: ServerAnswer,
    who: Pick<AuditEntry, "identity" | "namespace"> = { identity: "shop" },
  ): void => {
    const exchange: Exchange = {
      method,
      path,
      query: "",
      baseUrl: "http://localhost",
      authority: "localhost",
      header: () => undefined,
      hasBody: false,
      body: () => Promise.resolve(new Uint8Array()),
      onAbort: () => undefined,
    };
    audit.look(exchange, answer, () => ({ requestId: "r", ...who }));
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
  for (let at = 0; at < 1000; at += 1) look("GET", "/v1/stream/a", answerOf(401), {});
  expect(entries).toHaveLength(REFUSALS_MAX);
  // What was done is never left out.
  look("DELETE", "/v1/stream/a", answerOf(204));
  expect(entries).toHaveLength(REFUSALS_MAX + 1);
  clock.advance(1000);
  expect(entries.at(-1)).toEqual({
    time: "2026-01-01T00:00:01.000Z",
    act: "access",
    outcome: "refused",
    details: { omitted: 1000 - REFUSALS_MAX },
  });
  look("GET", "/v1/stream/a", answerOf(401), {});
  expect(entries.at(-1)).toMatchObject({ target: "GET /v1/stream/a" });
});

test("G52 neither strangers nor another identity can hide the refusals of an identity", () => {
  const { clock, entries, look } = open();
  const [noisy, quiet] = [{ identity: "a", namespace: "/v1/stream/x" }, { identity: "a" }];
  for (let at = 0; at < 100; at += 1) {
    look("GET", "/v1/stream/a", answerOf(401), {});
    look("DELETE", "/v1/stream/a", answerOf(403), noisy);
  }
  look("DELETE", "/v1/stream/b", answerOf(403), quiet);
  expect(entries.at(-1)).toMatchObject({ target: "/v1/stream/b", ...quiet });
  expect(entries).toHaveLength(2 * REFUSALS_MAX + 1);
  clock.advance(1000);
  const omitted = 100 - REFUSALS_MAX;
  const counts = entries.slice(2 * REFUSALS_MAX + 1);
  expect(counts).toMatchObject([{ details: { omitted } }, { ...noisy, details: { omitted } }]);
  expect(counts[0]).not.toHaveProperty("identity");
});

test("more identities than are counted apart share one count", () => {
  const { clock, entries, look } = open();
  const identities = IDENTITIES_APART_MAX + 50;
  for (let at = 0; at < identities; at += 1) {
    look("GET", "/v1/stream/a", answerOf(403), { identity: `i${String(at)}` });
  }
  expect(entries).toHaveLength(IDENTITIES_APART_MAX + REFUSALS_MAX);
  clock.advance(1000);
  expect(entries.at(-1)).toMatchObject({ details: { omitted: 50 - REFUSALS_MAX } });
});

test.each(["a", "é", '"', "\u0000"])("names of %j do not make a long line", (character) => {
  const { entries, look } = open();
  const long = character.repeat(5000);
  const audit = { acts: [{ act: "stream.close", target: long }], details: { stream: long } };
  look(
    "POST",
    "/v1/stream/a",
    { status: 204, headers: {}, audit },
    { identity: long, namespace: long },
  );
  const [entry] = entries;
  expect(entry?.target).toMatch(/^(.)\1+\.\.\.$/su);
  expect(JSON.stringify(entry?.target).length).toBeLessThanOrEqual(AUDIT_TEXT_MAX + 5);
  expect(jsonLine(entry as AuditEntry).length).toBeLessThan(4096);
  // What fits is whole.
  const fits = "a".repeat(AUDIT_TEXT_MAX);
  look("DELETE", `/${fits.slice(1)}`, answerOf(204));
  expect(entries[1]?.target).toBe(`/${fits.slice(1)}`);
});
