// PROTOCOL.md §1 and §13.7: the published suite over HTTPS with HTTP/1.1.
import { afterAll, expect, test } from "vitest";
import { openMemoryStore } from "../../src/streams/stores/memory.ts";
import { openTlsStage } from "../kits/tls-server.ts";
import { runPublishedSuite } from "./published-suite.ts";

// The suite calls `fetch`, which can be told of an authority only before the process starts.
process.env["NODE_TLS_REJECT_UNAUTHORIZED"] = "0";

const stage = openTlsStage();
const { certFile, keyFile } = stage;

runPublishedSuite("memory store over HTTPS", async () => openMemoryStore(), {
  tls: { certFile, keyFile },
});

test("the suite spoke HTTPS", async () => {
  const server = await stage.start();
  expect(server.url).toMatch(/^https:/);
  expect((await fetch(`${server.url}/healthz`)).status).toBe(200);
});

afterAll(async () => {
  await stage.close();
});
