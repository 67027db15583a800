// What a supervisor asks. PROTOCOL.md §12.6
import { afterEach, expect, test } from "vitest";
import { openFaultyStore } from "../../../test/kits/faulty-store.ts";
import { openStage, type ServerStage, textOf } from "../../../test/kits/server-stage.ts";
import { openMemoryStore } from "../stores/memory.ts";

const stages: ServerStage[] = [];
afterEach(async () => {
  for (const { server } of stages.splice(0)) await server.close();
});

function open(...args: Parameters<typeof openStage>): ServerStage {
  const stage = openStage(...args);
  stages.push(stage);
  return stage;
}

const LIVE = [200, '{"live":true}'];

async function probe({ ask }: ServerStage): Promise<unknown[]> {
  const [live, ready] = [await ask("GET", "/livez"), await ask("GET", "/readyz")];
  expect([live.status, textOf(live)]).toEqual(LIVE);
  expect((await ask("HEAD", "/readyz")).status).toBe(ready.status);
  const { ready: isReady, writes } = JSON.parse(textOf(ready)) as Record<string, unknown>;
  return [ready.status, isReady, writes];
}

test("a server that takes writes is live and ready", async () => {
  expect(await probe(open())).toEqual([200, true, "open"]);
});

test("a full store is live and not ready", async () => {
  const stage = open({}, openMemoryStore({ bytesMax: 4 }));
  await stage.ask("PUT", "/v1/stream/a", { "content-type": "text/plain" }, "1234");
  expect(await probe(stage)).toEqual([503, false, "full"]);
});

test("a server whose store has failed is live and not ready", async () => {
  const stage = open({}, openFaultyStore(openMemoryStore(), { failCommit: 1 }));
  await stage.ask("PUT", "/v1/stream/a", { "content-type": "text/plain" });
  expect(await probe(stage)).toEqual([503, false, "stopped"]);
});

test("a server that stops is live and not ready, and refuses everything else", async () => {
  const stage = open();
  stage.server.drain();
  expect(await probe(stage)).toEqual([503, false, "draining"]);
  for (const path of ["/healthz", "/metrics", "/v1/stream/a"]) {
    const refused = await stage.ask("GET", path);
    expect([refused.status, textOf(refused)]).toEqual([
      503,
      expect.stringContaining("shutting_down"),
    ]);
  }
  expect((await stage.ask("POST", "/livez")).status).toBe(405);
});
