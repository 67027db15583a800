// PROTOCOL.md §1 and §21: the published suite with a credential on every request.
import { vi } from "vitest";
import { ACTIONS } from "../../src/streams/access/identity.ts";
import { openMemoryStore } from "../../src/streams/stores/memory.ts";
import type { Authorize, Identity } from "../../src/streams/server.ts";
import { runPublishedSuite } from "./published-suite.ts";

const TOKEN = "Bearer of-the-suite";
const suite: Identity = { name: "suite", grants: [{ actions: ACTIONS }] };
const authorize: Authorize = ({ header }) =>
  header("authorization") === TOKEN ? suite : { refused: "invalid" };

const plainFetch = globalThis.fetch;
vi.stubGlobal("fetch", (input: string | URL | Request, init?: RequestInit) => {
  const request = new Request(input, init);
  if (!request.headers.has("authorization")) request.headers.set("authorization", TOKEN);
  return plainFetch(request);
});

runPublishedSuite("memory store with authentication", async () => openMemoryStore(), { authorize });
