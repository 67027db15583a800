// Registries: which streams come and go, once and together with what they report. PROTOCOL.md §25
import { createStateSchema } from "@durable-streams/state";
import { createStreamDB } from "@durable-streams/state/db";
import { describe, expect, test } from "vitest";
import { createVirtualClock } from "../src/testing/virtual-clock.ts";
import { appendCommand, createCommand, joinedText } from "../src/testing/commands.ts";
import { registriesOf } from "../src/streams/core/registry.ts";
import { applyChange } from "../src/streams/core/world.ts";
import { created } from "../src/testing/store-case-kit.ts";
import type { Engine } from "../src/streams/engine/engine.ts";
import { WholeEngine } from "../src/streams/engine/whole-engine.ts";
import type { Authorize, Identity } from "../src/streams/server.ts";
import type { Offset, StreamName } from "../src/streams/core/types.ts";
import type { Store } from "../src/streams/store.ts";
import { openOnDisk } from "../src/streams/stores/file/file-store.ts";
import { openMemoryStore } from "../src/streams/stores/memory.ts";
import { startNodeServer } from "../src/streams/runtimes/node.ts";
import { createSimulatedDisk } from "./kits/simulated-disk.ts";
import { openStage, type ServerStage, textOf } from "./kits/server-stage.ts";

const ROOT = "/v1/stream/__registry__";
const TYPE = { "content-type": "application/json" };
const TEXT = { "content-type": "text/plain" };

interface Event {
  readonly type: string;
  readonly key: string;
  readonly value?: { readonly path: string; readonly contentType: string; readonly closed?: true };
  readonly headers: { readonly operation: string; readonly life: string };
}

async function eventsOf(stage: ServerStage, path = ROOT, headers = {}): Promise<Event[]> {
  return JSON.parse(textOf(await stage.ask("GET", path, headers))) as Event[];
}

/** `insert a`, `update a` and `delete a`. */
const shortly = (events: readonly Event[]): string[] =>
  events.map(({ key, headers }) => `${headers.operation} ${key}`);

async function withRoot(store?: Store): Promise<ServerStage> {
  const stage = openStage({ registry: true }, store);
  expect((await stage.ask("PUT", ROOT, TYPE)).status).toBe(201);
  return stage;
}

describe("a registry", () => {
  test("G151 has one event for each act, and none for what changes nothing", async () => {
    const stage = await withRoot();
    const { ask } = stage;
    await ask("PUT", "/v1/stream/a", TEXT);
    await ask("PUT", "/v1/stream/a", TEXT);
    await ask("PUT", "/v1/stream/a", TYPE); // Refused: it has another type.
    const producer = { "producer-id": "p", "producer-epoch": "0", "producer-seq": "0" };
    const closes = { ...TEXT, ...producer, "stream-closed": "true" };
    await ask("POST", "/v1/stream/a", closes, "last");
    await ask("POST", "/v1/stream/a", closes, "last");
    await ask("POST", "/v1/stream/a", { "stream-closed": "true" });
    await ask("PUT", "/v1/stream/deep/er/b", { ...TYPE, "stream-closed": "true" });
    const key = { "idempotency-key": "once" };
    await ask("DELETE", "/v1/stream/a", key);
    await ask("PUT", "/v1/stream/a", TEXT);
    await ask("DELETE", "/v1/stream/a", key); // A retry: it deletes nothing.
    await ask("PUT", "/elsewhere", TEXT);
    const events = await eventsOf(stage);
    expect(shortly(events)).toEqual([
      "insert a",
      "update a",
      "insert deep/er/b",
      "update deep/er/b",
      "delete a",
      "insert a",
    ]);
    expect(events[0]).toMatchObject({
      type: "stream",
      value: { path: "a", contentType: "text/plain", createdAt: Date.UTC(2026, 0, 1) },
    });
    expect(events[1]?.value?.closed).toBe(true);
    const lives = events.filter((event) => event.key === "a").map(({ headers }) => headers.life);
    expect(new Set(lives.slice(0, 3)).size).toBe(1);
    expect(lives[3]).not.toBe(lives[0]);
  });

  test("G151 has forks, transactions, expiry and soft deletions", async () => {
    const stage = await withRoot();
    const { ask, clock } = stage;
    await ask("PUT", "/v1/stream/source", TEXT, "data");
    await ask("PUT", "/v1/stream/fork", { "stream-forked-from": "/v1/stream/source" });
    await ask("DELETE", "/v1/stream/source");
    await ask("DELETE", "/v1/stream/fork"); // The source goes with it, and was deleted before.
    const operations = [
      { create: { stream: "/v1/stream/tx", contentType: "text/plain" } },
      { append: { stream: "/v1/stream/tx", text: "one", close: true } },
      { create: { stream: "/v1/stream/short", contentType: "text/plain", ttlSeconds: 10 } },
    ];
    const body = JSON.stringify({ operations });
    const first = await ask(
      "POST",
      "/_hapax/transactions",
      { ...TYPE, "idempotency-key": "t" },
      body,
    );
    expect(first.status).toBe(200);
    await ask("POST", "/_hapax/transactions", { ...TYPE, "idempotency-key": "t" }, body);
    const refused = JSON.stringify({
      operations: [
        { create: { stream: "/v1/stream/never", contentType: "text/plain" } },
        { expect: { stream: "/v1/stream/tx", absent: true } },
      ],
    });
    await ask("POST", "/_hapax/transactions", { ...TYPE, "idempotency-key": "u" }, refused);
    clock.advance(60_000);
    expect(shortly(await eventsOf(stage))).toEqual([
      "insert source",
      "insert fork",
      "delete source",
      "delete fork",
      "insert tx",
      "update tx",
      "insert short",
      "delete short",
    ]);
  });

  test("of a folder has what is in and below it, and never itself", async () => {
    const stage = await withRoot();
    const { ask } = stage;
    const inner = "/v1/stream/acme/__registry__";
    await ask("PUT", inner, TYPE);
    for (const path of ["acme", "acme/x", "acme/y/z", "acme-2/x"]) {
      await ask("PUT", `/v1/stream/${path}`, TEXT);
    }
    expect(shortly(await eventsOf(stage, inner))).toEqual(["insert acme/x", "insert acme/y/z"]);
    await ask("POST", inner, { "stream-closed": "true" });
    await ask("DELETE", "/v1/stream/acme/x");
    expect(shortly(await eventsOf(stage, inner))).toHaveLength(2);
    expect(shortly(await eventsOf(stage))).toEqual([
      "insert acme/__registry__",
      "insert acme",
      "insert acme/x",
      "insert acme/y/z",
      "insert acme-2/x",
      "update acme/__registry__",
      "delete acme/x",
    ]);
  });

  test("that is not JSON, or of a server without the option, gets nothing", async () => {
    const without = openStage();
    const stage = openStage({ registry: true });
    await without.ask("PUT", ROOT, TYPE);
    await stage.ask("PUT", ROOT, TEXT);
    for (const { ask } of [without, stage]) await ask("PUT", "/v1/stream/a", TEXT);
    expect(textOf(await without.ask("GET", ROOT))).toBe("[]");
    expect(textOf(await stage.ask("GET", ROOT))).toBe("");
  });
});

test("where the streams of the root have other owners, folders alone have registries", () => {
  const { world } = openMemoryStore();
  const paths = ["/v1/stream", "/v1/stream/acme", "/v1/stream/acme/deep"];
  for (const [index, path] of paths.entries()) {
    const state = { name: `${path}/__registry__` as StreamName, contentType: "application/json" };
    applyChange(world, created(index + 1, state));
  }
  const find = (name: string, hasRoot: boolean): string[] =>
    registriesOf(world.streams, name as StreamName, { hasRoot }).map((state) => state.name);
  const registries = paths.map((path) => `${path}/__registry__`);
  expect(find("/v1/stream/acme/deep/x", true)).toEqual(registries);
  expect(find("/v1/stream/acme/deep/x", false)).toEqual(registries.slice(1));
  expect(find("/v1/stream/acme", false)).toEqual([]);
  expect(find("/v1/stream/acme/__registry__", true)).toEqual(registries.slice(0, 1));
  expect(find(`/v1/stream/${"a/".repeat(500)}x`, true)).toEqual(registries.slice(0, 1));
});

describe("rights", () => {
  const identityOf = (name: string, more: Partial<Identity>): Identity => ({
    name,
    grants: [{ actions: ["read", "append", "create", "delete"] }],
    ...more,
  });
  const callers = new Map<string, Identity>([
    ["a", identityOf("a", { namespace: "/v1/stream/a" })],
    ["b", identityOf("b", { namespace: "/v1/stream/b" })],
    ["root", identityOf("root", {})],
    ["blind", identityOf("blind", { grants: [{ actions: ["create", "delete"] }] })],
  ]);
  const authorize: Authorize = ({ header }) =>
    callers.get(header("x-name") ?? "") ?? { refused: "missing" };

  test("G151 a namespace has a registry of its own streams, and sees no other one", async () => {
    const stage = openStage({ registry: true }, openMemoryStore(), authorize);
    const { ask } = stage;
    for (const name of ["a", "b"]) {
      const made = await ask("PUT", `/v1/stream/${name}/__registry__`, { ...TYPE, "x-name": name });
      expect(made.status).toBe(201);
      await ask("PUT", `/v1/stream/${name}/own`, { ...TEXT, "x-name": name });
    }
    expect((await ask("PUT", ROOT, { ...TYPE, "x-name": "a" })).status).toBe(403);
    await ask("PUT", ROOT, { ...TYPE, "x-name": "root" });
    await ask("DELETE", "/v1/stream/b/own", { "x-name": "b" });
    const own = await eventsOf(stage, "/v1/stream/a/__registry__", { "x-name": "a" });
    expect(shortly(own)).toEqual(["insert a/own"]);
    for (const path of [ROOT, "/v1/stream/b/__registry__"]) {
      expect((await ask("GET", path, { "x-name": "a" })).status).toBe(403);
    }
    // Who may create and delete, and not read, still causes events, and does not see them.
    await ask("PUT", "/v1/stream/blind", { ...TEXT, "x-name": "blind" });
    expect((await ask("GET", ROOT, { "x-name": "blind" })).status).toBe(403);
    const all = await eventsOf(stage, ROOT, { "x-name": "root" });
    expect(shortly(all)).toEqual(["delete b/own", "insert blind"]);
  });
});

describe("on a disk", () => {
  const SETTINGS = { segmentBytes: 16_384, snapshotBytes: 1 << 30 };
  const clock = createVirtualClock(1_000_000);
  const openEngine = (store: Store): Engine =>
    new WholeEngine({
      store,
      clock,
      jsonRecordsEnd: () => undefined,
      registries: { hasRoot: true },
    });

  /** The streams that the registry says are there, and closed. */
  async function told(engine: Engine): Promise<string[]> {
    const look = await engine.look(ROOT as StreamName);
    if (look.kind !== "found") return [];
    const { appends } = await engine.read(look.state, 0 as Offset, 1 << 24);
    const events = JSON.parse(`[${joinedText(appends).replace(/,$/, "")}]`) as Event[];
    const there = new Map<string, string>();
    for (const { key, headers, value } of events) {
      // An act with two events, or with one out of order, does not fit what is there.
      expect(there.has(key)).toBe(headers.operation !== "insert");
      if (headers.operation === "delete") there.delete(key);
      else there.set(key, value?.closed === true ? "closed" : "open");
    }
    return [...there].map(([key, state]) => `${key} ${state}`).toSorted();
  }

  const present = (engine: Engine): string[] =>
    [...engine.world.streams.values()]
      .filter(({ name, isDeleted }) => !isDeleted && name !== ROOT)
      .filter(({ name }) => name.startsWith("/v1/stream/"))
      .map(({ name, isClosed }) => `${name.slice(11)} ${isClosed ? "closed" : "open"}`)
      .toSorted();

  async function work(engine: Engine): Promise<void> {
    await engine.create(createCommand(ROOT, { contentType: "application/json" }));
    for (let step = 0; step < 12; step += 1) {
      const name = `/v1/stream/s${step % 5}` as StreamName;
      const acts: Promise<unknown>[] = [engine.create(createCommand(name))];
      if (step % 3 === 1) acts.push(engine.append(name, appendCommand("x", { closes: true })));
      if (step % 4 === 2) acts.push(engine.delete(name));
      if (step % 4 === 3) acts.push(engine.create(createCommand(name)));
      await Promise.all(acts);
    }
  }

  test("G151 an act and its event are both there or neither, after a power cut at any call of the disk", async () => {
    const whole = createSimulatedDisk(1);
    await work(openEngine(await openOnDisk(whole, SETTINGS, async () => undefined)));
    const calls = whole.log.length;
    expect(calls).toBeGreaterThan(20);
    for (let call = 1; call <= calls; call += 1) {
      const disk = createSimulatedDisk(call);
      disk.stopAt(call);
      const opened = openOnDisk(disk, SETTINGS, async () => undefined).then((store) =>
        work(openEngine(store)),
      );
      await Promise.race([opened.catch(() => undefined), disk.stopped]);
      const engine = openEngine(await openOnDisk(disk.crash(), SETTINGS, async () => undefined));
      expect(await told(engine)).toEqual(present(engine));
    }
  });

  test("G151 on a full disk an act without room for its event is refused, and an expiry waits", async () => {
    const store = openMemoryStore({ bytesMax: 1500 });
    const engine = openEngine(store);
    await engine.create(createCommand(ROOT, { contentType: "application/json" }));
    const expiry = { kind: "ttl", seconds: 10 } as const;
    await engine.create(createCommand("/v1/stream/short", { expiry }));
    await engine.create(createCommand("/filler"));
    const full = { code: "store_full" };
    for (let bytes = 1024; bytes >= 1; bytes /= 2) {
      const append = () => engine.append("/filler" as StreamName, appendCommand("x".repeat(bytes)));
      while (store.room.bytes >= bytes) await append();
    }
    await expect(engine.create(createCommand("/v1/stream/new"))).rejects.toMatchObject(full);
    const short = "/v1/stream/short" as StreamName;
    const refused = async (act: () => Promise<unknown>): Promise<void> => {
      await expect((async () => act())()).rejects.toMatchObject(full);
    };
    await refused(() => engine.delete(short));
    const closing = appendCommand("", { closes: true });
    await refused(() => engine.append(short, closing));
    clock.advance(60_000);
    expect((await engine.look(short)).kind).toBe("found");
    expect(await told(engine)).toEqual(present(engine));
    // What frees room, and has no event, is still possible.
    await engine.delete(ROOT as StreamName);
    clock.advance(60_000);
    expect((await engine.look(short)).kind).toBe("missing");
    await engine.close();
  });
});

test("a client of the State protocol has the streams that there are", async () => {
  const server = await startNodeServer({ store: "memory", port: 0, registry: true });
  const put = (path: string, headers: Record<string, string>) =>
    fetch(server.url + path, { method: "PUT", headers });
  await put(ROOT, TYPE);
  const validate = (value: unknown) => ({ value: value as { path: string } });
  const schema = { "~standard": { version: 1 as const, vendor: "test", validate } };
  const state = createStateSchema({ streams: { schema, type: "stream", primaryKey: "path" } });
  const url = server.url + ROOT;
  const db = createStreamDB({ streamOptions: { url, contentType: "application/json" }, state });
  await db.preload();
  for (const name of ["one", "two", "three"]) await put(`/v1/stream/${name}`, TEXT);
  await fetch(`${server.url}/v1/stream/two`, { method: "DELETE" });
  const names = () => [...db.collections.streams.toArray].map(({ path }) => path).toSorted();
  await expect.poll(names).toEqual(["one", "three"]);
  db.close();
  await server.stop();
});
