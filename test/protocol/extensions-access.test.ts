// PROTOCOL.md §21: everything that Hapax has beyond the public protocol, with a credential on every request, and the public
// protocol too. What clients see is the same; only caching differs.
import { afterAll, describe, expect, test, vi } from "vitest";
import { startNodeServer } from "../../src/streams/runtimes/node.ts";
import type { Authorize, Identity } from "../../src/streams/server.ts";
import { ACTIONS } from "../../src/streams/access/identity.ts";
import { extensionCases } from "../../src/testing/testing.ts";

vi.setConfig({ maxConcurrency: 16 });

const TOKEN = "Bearer of-the-suite";
const suite: Identity = { name: "suite", grants: [{ actions: ACTIONS }] };
let checked = 0;
const authorize: Authorize = async ({ header }) => {
  checked += 1;
  // As one that asks another server: it takes a turn.
  await Promise.resolve();
  return header("authorization") === TOKEN ? suite : { refused: "invalid" };
};

const server = await startNodeServer({
  store: "memory",
  port: 0,
  authorize,
  onAudit: () => undefined,
});
const plainFetch = globalThis.fetch;
vi.stubGlobal("fetch", (input: string | URL | Request, init?: RequestInit) => {
  const request = new Request(input, init);
  // Workers of subscriptions send the token of their claim.
  if (!request.headers.has("authorization")) request.headers.set("authorization", TOKEN);
  return plainFetch(request);
});

afterAll(async () => {
  await server.stop();
});

describe("extensions with a credential on every request", () => {
  const cases = extensionCases({ url: server.url }).toSorted(
    (one, other) => Number(other.isSlow) - Number(one.isSlow),
  );
  for (const { title, run } of cases) test.concurrent(title, run);
});

test("every request was checked", async () => {
  expect(checked).toBeGreaterThan(1000);
  expect((await plainFetch(`${server.url}/_hapax/streams`)).status).toBe(401);
});
