// Reads of a stream that is trimmed at the same moment. PROTOCOL.md §7.10, §7.11, §23.2
import { afterEach, expect, test } from "vitest";
import { type NodeServer, startNodeServer } from "../runtimes/node.ts";
import { openMemoryStore } from "../stores/memory.ts";

const running: NodeServer[] = [];
afterEach(async () => {
  for (const server of running.splice(0)) await server.stop();
});

const offset = (count: number): string => `0000000000000000_${String(count).padStart(16, "0")}`;

/** A stream of four appends. Before the next read of the store its first two are trimmed. */
async function begun(): Promise<{ url: string; trimNext: () => void }> {
  const inner = openMemoryStore();
  let isDue = false;
  const server = await startNodeServer({
    port: 0,
    onAudit: () => undefined,
    store: {
      ...inner,
      async read(...range) {
        if (isDue) {
          isDue = false;
          const path = `/_hapax/trim?stream=/v1/stream/a&before=${offset(4)}`;
          const trimmed = await fetch(server.url + path, { method: "POST" });
          expect(trimmed.status).toBe(204);
        }
        return inner.read(...range);
      },
    },
  });
  running.push(server);
  const url = `${server.url}/v1/stream/a`;
  const headers = { "Content-Type": "application/json" };
  await fetch(url, { method: "PUT", headers });
  for (const body of ["1", "2", "3", "4"]) await fetch(url, { method: "POST", headers, body });
  return {
    url,
    trimNext() {
      isDue = true;
    },
  };
}

test("G110 a read without an offset begins at the earliest one, also if that moves meanwhile", async () => {
  const start = ["", "?offset=-1", "?offset=-1&live=long-poll"];
  for (const query of [...start, "?last=3", "?at=1970-01-01T00:00:00Z"]) {
    const { url, trimNext } = await begun();
    trimNext();
    const answer = await fetch(url + query);
    expect([query, answer.status, await answer.text()]).toEqual([query, 200, "[3,4]"]);
    expect(answer.headers.get("stream-earliest-offset")).toBe(offset(4));
  }
});

test("G110 a read from an offset that is trimmed meanwhile is refused", async () => {
  const { url, trimNext } = await begun();
  trimNext();
  const answer = await fetch(`${url}?offset=${offset(2)}`);
  expect(answer.status).toBe(410);
  expect(answer.headers.get("stream-earliest-offset")).toBe(offset(4));
  expect(await answer.json()).toMatchObject({ code: "offset_trimmed", earliestOffset: offset(4) });
});
