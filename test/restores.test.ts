// `hapax backup` and `hapax restore` of a running server, and who meets the restored one. PROTOCOL.md §27.1, §27.2, GUARANTEES.md, G142 to G144.
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { connect, memoryPosition } from "../src/client/client.ts";
import { connectServer } from "../src/client/processing.ts";
import { openFileStore } from "../src/streams/stores/file.ts";
import { type NodeServer, startNodeServer } from "../src/streams/runtimes/node.ts";
import { ledgerSink } from "../src/toolkit/ledger.ts";
import { memoryLedger } from "../src/toolkit/ledgers/memory.ts";
import {
  acceptRestore,
  createOutbox,
  createRelay,
  forgetRelay,
  hapaxPublisher,
} from "../src/toolkit/outbox.ts";
import type { AuditEntry } from "../src/streams/log.ts";
import { hapax } from "./kits/cli-harness.ts";

let folder: string;
let server: NodeServer;
let audit: AuditEntry[];

const data = (): string => join(folder, "data");
const backups = (): string => join(folder, "backups");

async function serve(directory: string, port = 0): Promise<NodeServer> {
  const store = await openFileStore(directory, { segmentBytes: 1 << 20 });
  return startNodeServer({ store, port, onAudit: (entry) => audit.push(entry) });
}

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "hapax-restores-"));
  audit = [];
  server = await serve(data());
});

afterEach(async () => {
  await server.stop();
  await rm(folder, { recursive: true });
});

async function run(words: readonly string[], more: Parameters<typeof hapax>[1] = {}) {
  const result = await hapax(words, { env: { HAPAX_URL: server.url }, ...more });
  expect(result, result.stderr).toMatchObject({ code: 0 });
  return result;
}

/** The server goes back to the newest backup, at its address. */
async function goBack(): Promise<string> {
  const port = Number(new URL(server.url).port);
  const restored = join(folder, `restored-${port}`);
  const { stdout } = await run(["restore", backups(), restored, "--json"]);
  const { incarnation } = JSON.parse(stdout) as { readonly incarnation: string };
  await server.stop();
  server = await serve(restored, port);
  return incarnation;
}

const streamAt = <T>(name: string) =>
  connect<T>(`${server.url}/v1/stream/${name}`, { retry: { totalMs: 5000 } });

const codeOf = (error: unknown): unknown => {
  return error instanceof Error && "code" in error ? error.code : error;
};

test("G142 a backup under load has everything that was acknowledged before it, and restores elsewhere", async () => {
  const streams = [0, 1, 2, 3].map((at) => streamAt<number>(`load-${at}`));
  await Promise.all(streams.map((stream) => stream.create()));
  const acked = [0, 0, 0, 0];
  let isOver = false;
  const load = streams.map(async (stream, at) => {
    for (let count = 1; !isOver; count += 1) {
      await stream.append(count);
      acked[at] = count;
    }
  });
  while (acked.some((count) => count < 40)) await new Promise((resolve) => setTimeout(resolve, 5));
  for (let round = 0; round < 2; round += 1) {
    const before = [...acked];
    await run(["backup", backups(), "--bytes-per-second", "0"]);
    const after = [...acked];
    const restored = join(folder, `elsewhere-${round}`);
    const { stdout } = await run(["restore", backups(), restored]);
    expect(stdout).toMatch(
      /^restored all of .*: 4 streams, .*\nsound: .*\nthe server goes on as incarnation 2-/,
    );
    const other = await serve(restored);
    for (const [at, stream] of streams.entries()) {
      const values = await connect<number>(new URL(new URL(stream.url).pathname, other.url))
        .read()
        .values();
      expect(values).toEqual(values.map((_, index) => index + 1));
      expect(values.length).toBeGreaterThanOrEqual(before[at] ?? 0);
      // Nothing of later, but what was on its way.
      expect(values.length).toBeLessThanOrEqual((after[at] ?? 0) + 1);
    }
    await other.stop();
  }
  isOver = true;
  await Promise.all(load);
});

test("G142 the command keeps, lists, checks and removes backups, and says what it did", async () => {
  const stream = streamAt<number>("a");
  await stream.create();
  await stream.append(1);
  const first = await run(["backup", backups()]);
  expect(first.stdout).toMatch(
    /^backed up all of \S+Z, LSN \d+, to .*backups: 1 segment and 0 snapshots, .* fetched\n$/,
  );
  await stream.append(2);
  const next = JSON.parse((await run(["backup", backups(), "--json"])).stdout) as Record<
    string,
    number
  >;
  expect(next["fetched"]).toBeLessThan(1000);
  const listed = await run(["restore", "--list", backups(), "--json"]);
  const names = listed.stdout
    .trim()
    .split("\n")
    .map((line) => (JSON.parse(line) as { backup: string }).backup);
  expect(names).toHaveLength(2);
  expect((await run(["restore", "--list", backups()])).stdout).toContain(`\n${names[1]}  `);
  const one = join(folder, "one");
  await run(["restore", backups(), one, "--backup", names[1] ?? ""]);
  expect((await run(["restore", "--check", backups()])).stdout).toContain(
    "every byte is what was backed up",
  );
  const kept = JSON.parse((await run(["backup", backups(), "--keep", "1", "--json"])).stdout) as {
    removed: [];
  };
  expect(kept.removed).toHaveLength(2);
  const metrics = await (await fetch(`${server.url}/_hapax/metrics`)).text();
  expect(metrics).toMatch(/^hapax_backups_running 0$/m);
  expect(metrics).toMatch(/^hapax_backup_last_timestamp_seconds 1[\d.]+$/m);
  expect(metrics).toMatch(/^hapax_incarnation 1$/m);
  expect(audit.filter(({ act }) => act === "backup.end")).toHaveLength(3);
  expect(audit).toContainEqual(expect.objectContaining({ act: "backup.begin", outcome: "done" }));
});

test("G142 a file and standard output have the same backup, and a file is whole or not there", async () => {
  await streamAt("a").create();
  await streamAt("a").append({ n: 1 });
  const file = join(folder, "all.tar");
  await run(["backup", file]);
  const pieces: Uint8Array[] = [];
  const piped = await run(["backup", "-"], { onBytes: (bytes) => pieces.push(bytes) });
  expect(piped.stderr).toContain("backed up all of");
  await run(["restore", "-", join(folder, "piped")], { stdin: chunksOf(Buffer.concat(pieces)) });
  await run(["restore", file, join(folder, "filed"), "--secret-file", await secretFile()]);
  expect(await readFile(join(folder, "filed", "SECRET"), "utf8")).toBe(`${"ab".repeat(32)}\n`);
  const cut = join(folder, "cut.tar");
  const whole = await readFile(file);
  await writeFile(cut, whole.subarray(0, Math.floor(whole.length / 2)));
  const target = join(folder, "refused");
  const refused = await hapax(["restore", cut, target]);
  expect(refused).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("the backup is not whole"),
  });
  await expect(openFileStore(target)).rejects.toMatchObject({ code: "directory_unusable" });
  await run(["restore", file, target]);
  const again = await hapax(["restore", file, target]);
  expect(again).toMatchObject({ code: 1, stderr: expect.stringContaining("not empty") });
  expect((await readdir(folder)).filter((name) => name.includes("unfinished"))).toEqual([]);
});

async function secretFile(): Promise<string> {
  const path = join(folder, "secret");
  await writeFile(path, `${"ab".repeat(32)}\n`, { mode: 0o600 });
  return path;
}

async function* chunksOf(bytes: Buffer): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += 5000) {
    yield await Promise.resolve(bytes.subarray(at, at + 5000));
  }
}

test("G142 a server in memory says that it has no backups, and what to do", async () => {
  const memory = await startNodeServer({ store: "memory", port: 0 });
  const refused = await hapax(["backup", backups()], { env: { HAPAX_URL: memory.url } });
  expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining("hapax copy") });
  await memory.stop();
});

test("G142 the answer of a backup that is over, or was never begun, says so", async () => {
  const answer = await fetch(`${server.url}/_hapax/backups/none/segments/1`);
  expect(answer.status).toBe(410);
  expect(await answer.json()).toMatchObject({ type: "urn:hapax:error:backup_over" });
  const begun = await fetch(`${server.url}/_hapax/backups`, { method: "POST" });
  const { backup, segments } = (await begun.json()) as {
    backup: string;
    segments: { bytes: number }[];
  };
  const at = (path: string) => fetch(`${server.url}/_hapax/backups/${backup}${path}`);
  expect((await at("/segments/1?from=4096")).status).toBe(segments[0]?.bytes === 4096 ? 400 : 200);
  expect((await at("/segments/9")).status).toBe(400);
  expect((await at(`/segments/1?from=${segments[0]?.bytes}`)).status).toBe(400);
  for (const _ of [1, 2]) {
    expect(
      (await fetch(`${server.url}/_hapax/backups/${backup}`, { method: "DELETE" })).status,
    ).toBe(204);
  }
  expect((await at("/segments/1")).status).toBe(410);
});

test("G144 a reader with a position, and one that follows, notice a server that went back", async () => {
  const stream = streamAt<number>("orders");
  await stream.create();
  await stream.append(1);
  await run(["backup", backups()]);
  await stream.append(2);
  const position = memoryPosition();
  const pages = [];
  for await (const page of stream.read().pages()) pages.push(page);
  const last = pages.at(-1);
  await position.save(last?.position ?? "");
  const following = (async () => {
    for await (const _ of streamAt("orders").follow({ live: "long-poll" })) continue;
  })().catch(codeOf);
  const incarnation = await goBack();
  expect(await following).toBe("server_restored");
  const again = streamAt<number>("orders");
  // Others write on, beyond what the reader knows: without the incarnation it would skip that in silence.
  await again.append(3);
  await again.append(4);
  const from = last?.position;
  await expect(again.read({ from }).values()).rejects.toMatchObject({
    code: "server_restored",
    status: 409,
  });
  await expect(again.follow({ position })[Symbol.asyncIterator]().next()).rejects.toMatchObject({
    code: "server_restored",
  });
  expect(await again.read().values()).toEqual([1, 3, 4]);
  // To accept is to give the offset alone.
  expect(await again.read({ from: last?.nextOffset }).values()).toEqual([4]);
  expect((await again.head()).life).toMatch(new RegExp(`~${incarnation}$`));
  expect((await fetch(`${server.url}/_hapax/health`)).headers.get("stream-incarnation")).toBe(
    incarnation,
  );
  expect((await fetch(again.url)).status).toBe(200);
});

test("G144 a member of a group that meets a restored server ends, and does not go on in silence", async () => {
  const hapaxServer = connectServer(server.url, { retry: { totalMs: 5000, pauseMs: 20 } });
  const orders = hapaxServer.stream<number>("/v1/stream/orders");
  await orders.create();
  await orders.append(1);
  const seen: number[] = [];
  const consumer = hapaxServer.consumer<number>({
    group: "billing",
    streams: [orders],
    heartbeatMs: 100,
  });
  const ended = (async () => {
    for await (const batch of consumer) {
      seen.push(...batch.records);
      await batch.commit();
    }
  })().catch(codeOf);
  await expect.poll(() => seen).toEqual([1]);
  await run(["backup", backups()]);
  await orders.append(2);
  await expect.poll(() => seen).toEqual([1, 2]);
  await goBack();
  expect(await ended).toBe("server_restored");
  await consumer.close().catch(() => undefined);
});

test("G144 a member whose leases a restored server has forgotten ends before it reads on", async () => {
  let isBlind = false;
  const hapaxServer = connectServer(server.url, {
    retry: { totalMs: 20_000, pauseMs: 20 },
    // Reads do not get through: only its claims can tell the member.
    fetch: (input, init) => {
      const url = input instanceof Request ? input.url : input.toString();
      const isRead = url.includes("/v1/stream/") && init?.method === "GET";
      return isBlind && isRead ? Promise.reject(new TypeError("cut")) : fetch(input, init);
    },
  });
  const orders = hapaxServer.stream<number>("/v1/stream/orders");
  await orders.create();
  await orders.append(1);
  await hapaxServer.group("billing").create({ streams: [orders] });
  await run(["backup", backups()]);
  const seen: number[] = [];
  const consumer = hapaxServer.consumer<number>({ group: "billing", heartbeatMs: 100 });
  const ended = (async () => {
    for await (const batch of consumer) {
      seen.push(...batch.records);
      await batch.commit();
    }
  })().catch(codeOf);
  await expect.poll(() => seen).toEqual([1]);
  isBlind = true;
  await goBack();
  expect(await ended).toBe("server_restored");
  expect(seen).toEqual([1]);
  await consumer.close().catch(() => undefined);
});

test("G144 a worker of jobs that meets a restored server ends, and does no job again in silence", async () => {
  const hapaxServer = connectServer(server.url, { retry: { totalMs: 5000, pauseMs: 20 } });
  const orders = hapaxServer.stream<number>("/v1/stream/orders");
  await orders.create();
  await run(["backup", backups()]);
  const seen: number[] = [];
  const worker = hapaxServer.jobs<number>({
    from: { streams: [orders] },
    group: "mails",
    each: (order) => void seen.push(order),
  });
  await orders.append(1);
  const ended = worker.run().catch(codeOf);
  await expect.poll(() => seen).toEqual([1]);
  await goBack();
  await hapaxServer
    .group("mails")
    .create({ streams: [orders], jobs: true })
    .catch(codeOf);
  await streamAt("orders").append(2);
  expect(await ended).toBe("server_restored");
  expect(seen).toEqual([1]);
});

test("G144 a pipeline with its positions in a database stops at a restored server, until that is accepted", async () => {
  const hapaxServer = connectServer(server.url, { retry: { totalMs: 5000, pauseMs: 20 } });
  const orders = hapaxServer.stream<number>("/v1/stream/orders");
  await orders.create();
  await orders.append(1);
  await run(["backup", backups()]);
  await orders.append(2);
  const ledger = memoryLedger();
  const seen: number[] = [];
  const process = async (count: number, acceptRestored?: string): Promise<void> => {
    const pipeline = hapaxServer.pipeline({
      from: { streams: [orders] },
      group: "payments",
      sink: ledgerSink(ledger),
      acceptRestored,
      each: (order: number) => {
        seen.push(order);
      },
      onProgress: () => void (seen.length >= count && pipeline.close()),
    });
    await pipeline.run();
  };
  await process(2);
  const incarnation = await goBack();
  for (const value of [3, 4]) await streamAt("orders").append(value);
  const error: unknown = await process(9).catch((thrown: unknown) => thrown);
  expect(codeOf(error)).toBe("server_restored");
  expect(String(error)).toContain(`acceptRestored: "${incarnation}"`);
  expect(seen).toEqual([1, 2]);
  await expect(process(9, "2-00000000")).rejects.toMatchObject({ code: "server_restored" });
  await process(3, incarnation);
  // What the restored server has at the place of 2 counts as done: that is what was accepted.
  expect(seen).toEqual([1, 2, 4]);
});

test("G144 a relay stops at a restored server before it sends anything, and goes on when that is accepted", async () => {
  const ledger = memoryLedger();
  const outbox = createOutbox(ledger);
  const add = (id: number) =>
    ledger.transaction((tx) => outbox.add(tx, { topic: "orders", key: "k", payload: { id } }));
  const publisher = hapaxPublisher({
    url: server.url,
    streamOf: () => "/v1/stream/orders",
    hasEnvelope: false,
    create: {},
    clientOptions: { retry: { totalMs: 5000, pauseMs: 20 } },
  });
  const relay = createRelay(ledger, publisher, { name: "out", onError: () => undefined });
  await add(1);
  await relay.runOnce();
  await run(["backup", backups()]);
  await add(2);
  await relay.runOnce();
  await goBack();
  await add(3);
  for (const attempt of [relay.runOnce(), undefined]) {
    const error: unknown = await (attempt ?? relay.run()).catch((thrown: unknown) => thrown);
    expect(codeOf(error)).toBe("server_restored");
    expect(String(error)).toContain("hapax outbox accept-restore --relay out");
  }
  expect(await streamAt("orders").read().values()).toEqual([{ id: 1 }]);
  expect(await acceptRestore(ledger, "out")).toBe("1");
  await relay.runOnce();
  expect(await streamAt("orders").read().values()).toEqual([{ id: 1 }, { id: 3 }]);
  await forgetRelay(ledger, "out");
  expect(await acceptRestore(ledger, "out")).toBeUndefined();
});

test("G144 a transaction names the incarnation that it means, and another one refuses it whole", async () => {
  const hapaxServer = connectServer(server.url);
  await hapaxServer.transaction((tx) => {
    tx.create("/v1/stream/a");
  });
  expect(await hapaxServer.incarnation()).toBe("1");
  const send = (incarnation: string, key: string) =>
    hapaxServer.transaction(
      (tx) => {
        tx.append("/v1/stream/a", { key });
      },
      { incarnation, key },
    );
  await send("1", "one");
  await expect(send("2-9ab1c3d4", "two")).rejects.toMatchObject({
    code: "server_restored",
    outcome: "not_stored",
  });
  await expect(send("two", "three")).rejects.toMatchObject({ code: "invalid_request" });
  expect(await hapaxServer.stream("/v1/stream/a").read().values()).toEqual([{ key: "one" }]);
});

test("G144 a copy of streams is not mixed with what it had of the server before", async () => {
  const target = await startNodeServer({ store: "memory", port: 0 });
  const stream = streamAt<number>("orders");
  await stream.create();
  await stream.append(1);
  await run(["backup", backups()]);
  await stream.append(2);
  await run(["copy", server.url, target.url]);
  await goBack();
  for (const value of [3, 4]) await streamAt("orders").append(value);
  const refused = await hapax(["copy", server.url, target.url]);
  expect(refused.code).not.toBe(0);
  expect(refused.stderr).toContain("restored");
  expect(await connect(`${target.url}/v1/stream/orders`).read().values()).toEqual([1, 2]);
  await target.stop();
});

test("G144 data that was put back in another way is made known to clients by --in-place", async () => {
  const stream = streamAt<number>("orders");
  await stream.create();
  await stream.append(1);
  const { life } = await stream.head();
  await server.stop();
  const copy = join(folder, "copy");
  await cp(data(), copy, { recursive: true, filter: (path) => !path.includes("LOCK") });
  const told = await hapax(["restore", "--in-place", copy]);
  expect(told).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/as incarnation 2-[\da-f]{8};/),
  });
  const twice = await hapax(["restore", "--in-place", copy, "--json"]);
  expect(JSON.parse(twice.stdout)).toEqual({ incarnation: expect.stringMatching(/^3-/) });
  server = await serve(copy);
  const { life: next } = await streamAt("orders").head();
  expect(next).toMatch(/~3-[\da-f]{8}$/);
  expect(next?.split("~")[0]).toBe(life);
  const both = await hapax(["restore", "--in-place", copy, "--check"]);
  expect(both).toMatchObject({ code: 2, stderr: expect.stringContaining("give one") });
});
