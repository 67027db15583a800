// What Hapax has beyond the public protocol: PROTOCOL.md §4.5, §7.10 to §7.12, §12, §14 to §20 and §23, on every store and lane.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test, vi } from "vitest";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import type { Store } from "../../src/streams/store.ts";
import { openFileStore } from "../../src/streams/stores/file.ts";
import { openMemoryStore } from "../../src/streams/stores/memory.ts";
import { extensionCapabilities, extensionCases } from "../../src/testing/testing.ts";
import { EXTENSION_CASES as CASES } from "../kits/fetch-hosts.ts";

vi.setConfig({ maxConcurrency: 16 });

const directories: string[] = [];
const servers: NodeServer[] = [];

afterAll(async () => {
  for (const server of servers) await server.stop();
  for (const directory of directories) rmSync(directory, { recursive: true, force: true });
});

// Small files and frequent snapshots, so that rolls and compaction happen under the cases.
function openFile(): Promise<Store> {
  const directory = mkdtempSync(join(tmpdir(), "hapax-extensions-"));
  directories.push(directory);
  return openFileStore(directory, { segmentBytes: 1 << 16, snapshotBytes: 1 << 16 });
}

async function start(store: Store, hasFastLane: boolean): Promise<NodeServer> {
  const server = await startNodeServer({ port: 0, store, hasFastLane, onAudit: () => undefined });
  servers.push(server);
  return server;
}

const options = [
  { name: "the memory store", url: (await start(openMemoryStore(), true)).url },
  {
    name: "the memory store without the fast lane",
    url: (await start(openMemoryStore(), false)).url,
  },
  { name: "the file store", url: (await start(await openFile(), true)).url },
  { name: "the file store without the fast lane", url: (await start(await openFile(), false)).url },
];

for (const { name, url } of options) {
  describe(`extensions on ${name}`, () => {
    // Those that wait come first, and all others while they wait.
    const cases = extensionCases({ url }).toSorted(
      (one, other) => Number(other.isSlow) - Number(one.isSlow),
    );
    for (const { title, run } of cases) test.concurrent(title, run);
  });
}

// PROTOCOL.md §16.1: which options a server has is not for a suite to know.
test("a stream without an option of its keys has that of the server", async () => {
  const server = await startNodeServer({
    store: "memory",
    port: 0,
    keyMax: 1,
    keyOverflow: "reject",
  });
  servers.push(server);
  const append = async (path: string, key: string): Promise<number> => {
    const headers = { "Content-Type": "text/plain", "Idempotency-Key": key };
    const request = { method: "POST", headers, body: "a" };
    return (await fetch(`${server.url}${path}`, request)).status;
  };
  const create = (path: string, headers: Record<string, string>): Promise<Response> =>
    fetch(`${server.url}${path}`, {
      method: "PUT",
      headers: { "Content-Type": "text/plain", ...headers },
    });
  await create("/as-the-server", {});
  await create("/larger", { "Stream-Key-Max": "2" });
  await create("/evicting", { "Stream-Key-Overflow": "evict" });
  for (const [path, expected] of [
    ["/as-the-server", [204, 429, 429]],
    ["/larger", [204, 204, 429]],
    ["/evicting", [204, 204, 204]],
  ] as const) {
    const statuses = [await append(path, "1"), await append(path, "2"), await append(path, "3")];
    expect([path, statuses]).toEqual([path, expected]);
  }
});

test(`there are ${CASES} cases, each with a title of its own and a section`, () => {
  const cases = extensionCases({ url: "http://127.0.0.1" });
  expect(cases.length).toBe(CASES);
  expect(new Set(cases.map(({ title }) => title)).size).toBe(CASES);
  const sections = [...new Set(cases.map(({ section }) => section))].toSorted();
  const before = ["12.1", "12.3", "12.4", "12.5", "12.7", "14", "15", "16", "16.1", "16.2", "16.3"];
  const after = ["17", "18", "19", "19.1", "19.2", "19.3", "19.4"];
  const groups = ["20", "20.1", "20.2", "20.3", "20.4"];
  const retention = ["23.1", "23.2", "23.3", "23.4", "26.1", "26.2", "26.3"];
  const first = ["4.1", "4.5", "5.2", "7.10", "7.11", "7.12", "7.9"];
  expect(sections).toEqual([...before, ...after, ...groups, ...retention, ...first]);
});

test("a server that lacks a capability is asked nothing about it", () => {
  const url = "http://127.0.0.1";
  for (const capability of extensionCapabilities) {
    const others = extensionCapabilities.filter((other) => other !== capability);
    const left = extensionCases({ url, capabilities: others });
    expect(left.filter((each) => each.capability === capability)).toEqual([]);
    expect(left.length).toBeLessThan(CASES);
  }
});
