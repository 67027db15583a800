// Lives of a path on disk: the same over a restart, and never the same twice, also after a restore. PROTOCOL.md §7.9
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { startNodeServer } from "../src/streams/runtimes/node.ts";
import { openFileStore } from "../src/streams/stores/file.ts";

const root = mkdtempSync(join(tmpdir(), "hapax-lives-"));
afterAll(() => {
  rmSync(root, { recursive: true, force: true });
});

/** Runs a server on the directory for as long as the work takes. */
async function serving<T>(directory: string, work: (url: string) => Promise<T>): Promise<T> {
  const server = await startNodeServer({ port: 0, store: await openFileStore(directory) });
  try {
    return await work(server.url);
  } finally {
    await server.stop();
  }
}

const create = async (url: string, name: string): Promise<string | null> => {
  await fetch(`${url}/v1/stream/${name}`, { method: "PUT" });
  return lifeOf(url, name);
};
const lifeOf = async (url: string, name: string): Promise<string | null> =>
  (await fetch(`${url}/v1/stream/${name}`, { method: "HEAD" })).headers.get("Stream-Life");

test("G31 a life lasts over restarts, and is never given twice, also after a restore of the directory", async () => {
  const [directory, copy] = [join(root, "data"), join(root, "copy")];
  const old = await serving(directory, (url) => create(url, "old"));
  cpSync(directory, copy, { recursive: true });
  const lost = await serving(directory, (url) => create(url, "new"));
  expect(await serving(directory, (url) => lifeOf(url, "new"))).toBe(lost);
  // The copy takes the place of the directory: the ids go on where it was made.
  const [kept, made] = await serving(copy, async (url) => [
    await lifeOf(url, "old"),
    await create(url, "new"),
  ]);
  expect(kept).toBe(old);
  expect(made).not.toBe(lost);
  expect(made?.split("-")[0]).toBe(lost?.split("-")[0]);
});
