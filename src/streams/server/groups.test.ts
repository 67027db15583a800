// What a restart leaves of transactions and groups, over HTTP. PROTOCOL.md §19, §20
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { type NodeServer, startNodeServer } from "../runtimes/node.ts";
import { openFileStore } from "../stores/file.ts";

const directory = mkdtempSync(join(tmpdir(), "hapax-groups-"));

afterAll(() => {
  rmSync(directory, { recursive: true, force: true });
});

async function start(): Promise<NodeServer> {
  const store = await openFileStore(directory);
  return startNodeServer({ port: 0, store, onAudit: () => undefined });
}

type Members = Readonly<Record<string, unknown>>;

async function send(
  server: NodeServer,
  method: string,
  path: string,
  value: unknown,
  more: Readonly<Record<string, string>> = {},
): Promise<{ readonly status: number; readonly text: string; readonly replayed: boolean }> {
  const headers = { "Content-Type": "application/json", ...more };
  const response = await fetch(server.url + path, { method, headers, body: JSON.stringify(value) });
  const replayed = response.headers.has("idempotency-replayed");
  return { status: response.status, text: await response.text(), replayed };
}

test("a restart keeps outcomes, offsets, leases and the count of tokens", async () => {
  const at = (bytes: number): string => `0000000000000000_${String(bytes).padStart(16, "0")}`;
  const group = "/_hapax/groups/g";
  let server = await start();
  await send(server, "PUT", "/in", [1, 2]);
  await send(server, "PUT", "/out", []);
  await send(server, "PUT", group, { streams: ["/in"] });
  const joined = await send(server, "POST", `${group}/join`, { name: "a" });
  const { member } = JSON.parse(joined.text) as Members;
  const claimed = await send(server, "POST", `${group}/claim`, { member });
  const { leases } = JSON.parse(claimed.text) as { readonly leases: readonly Members[] };
  const { token } = leases[0] ?? {};
  const operations = [
    { commit: { group: "g", member, stream: "/in", token, offset: at(2) } },
    { append: { stream: "/out", data: ["done"] } },
  ];
  const key = { "Idempotency-Key": "once" };
  const transact = (): ReturnType<typeof send> =>
    send(server, "POST", "/_hapax/transactions", { operations }, key);
  const original = await transact();
  expect(original).toMatchObject({ status: 200, replayed: false });
  await server.stop();

  server = await start();
  expect(await transact()).toEqual({ ...original, replayed: true });
  const again = await send(server, "POST", `${group}/claim`, { member });
  expect(JSON.parse(again.text)).toMatchObject({
    leases: [{ stream: "/in", token, offset: at(2) }],
  });
  await send(server, "POST", `${group}/leave`, { member });
  await fetch(server.url + group, { method: "DELETE" });
  await server.stop();

  server = await start();
  await send(server, "PUT", group, { streams: ["/in"] });
  const next = await send(server, "POST", `${group}/join`, { name: "a" });
  const { member: other } = JSON.parse(next.text) as Members;
  expect(other).not.toBe(member);
  const taken = await send(server, "POST", `${group}/claim`, { member: other });
  const { leases: fresh } = JSON.parse(taken.text) as { readonly leases: readonly Members[] };
  expect(Number(fresh[0]?.["token"])).toBeGreaterThan(Number(token));
  expect(fresh[0]?.["offset"]).toBe(at(0));
  await server.stop();
});
