// PROTOCOL.md §12.3
import { readFileSync } from "node:fs";
import { afterEach, describe, expect, test } from "vitest";
import { type Authorize, createServer, type Exchange, type HapaxServer } from "../server.ts";
import { ACTIONS } from "../access/identity.ts";
import type { Store } from "../store.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { openFaultyStore } from "../../../test/kits/faulty-store.ts";
import { createVirtualClock, type VirtualClock } from "../../testing/virtual-clock.ts";

interface Sample {
  readonly name: string;
  readonly labels: ReadonlyMap<string, string>;
  readonly value: number;
}

interface Family {
  readonly help: string;
  readonly type: string;
  readonly samples: readonly Sample[];
}

const NAME = "[a-zA-Z_:][a-zA-Z0-9_:]*";
const LABEL = String.raw`([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"`;
const SAMPLE = new RegExp(`^(${NAME})(?:\\{(${LABEL}(?:,${LABEL})*,?)\\})? (\\S+)(?: -?\\d+)?$`);
const FLOAT = /^[+-]?(Inf|\d+(\.\d*)?([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?)$|^NaN$/;
const TYPES = ["counter", "gauge", "histogram", "summary", "untyped"];

/** The text format 0.0.4, as its documentation has it. Throws at the first line that is not of it. */
function parseMetrics(text: string): ReadonlyMap<string, Family> {
  if (!text.endsWith("\n")) throw new Error("the last line does not end");
  const families = new Map<string, { help: string; type: string; samples: Sample[] }>();
  let current = "";
  for (const line of text.slice(0, -1).split("\n")) {
    const comment = new RegExp(`^# (HELP|TYPE) (${NAME}) (.*)$`).exec(line);
    if (comment !== null) {
      const [, kind, name = "", rest = ""] = comment;
      const family = families.get(name) ?? { help: "", type: "", samples: [] };
      if (family.samples.length > 0) throw new Error(`${line}: after the samples`);
      if (kind === "HELP" ? family.help !== "" : family.type !== "")
        throw new Error(`${line}: twice`);
      if (kind === "TYPE" && !TYPES.includes(rest)) throw new Error(`${line}: no such type`);
      if (kind === "HELP") family.help = rest;
      else family.type = rest;
      families.set(name, family);
      current = name;
      continue;
    }
    const sample = SAMPLE.exec(line);
    if (sample === null) throw new Error(`not a line of the format: ${line}`);
    const [, name = "", pairs = ""] = sample;
    const value = sample.at(-1) ?? "";
    if (!FLOAT.test(value)) throw new Error(`${line}: not a number`);
    const labels = new Map<string, string>();
    for (const [, label = "", held = ""] of pairs.matchAll(new RegExp(LABEL, "g"))) {
      if (labels.has(label)) throw new Error(`${line}: a label twice`);
      labels.set(label, held);
    }
    const family = families.get(current);
    const isOfFamily = name === current || new RegExp(`^${current}_(bucket|sum|count)$`).test(name);
    if (family === undefined || !isOfFamily) throw new Error(`${line}: not below its family`);
    family.samples.push({ name, labels, value: Number(value.replace("Inf", "Infinity")) });
  }
  return families;
}

const servers: HapaxServer[] = [];

afterEach(async () => {
  for (const server of servers.splice(0)) await server.close();
});

type Headers = Readonly<Record<string, string>>;

interface Stage {
  readonly clock: VirtualClock;
  put(path: string, headers?: Headers): Promise<number>;
  post(path: string, body: string, headers?: Headers): Promise<number>;
  metrics(): Promise<string>;
  /** The value of one sample, such as `hapax_keys` or `hapax_appends_total{outcome="gap"}`. */
  value(sample: string): Promise<number>;
}

function exchange(method: string, path: string, body = "", headers: Headers = {}): Exchange {
  const sent: Headers = { "content-type": "text/plain", ...headers };
  return {
    method,
    path,
    query: "",
    baseUrl: "http://test",
    authority: "localhost",
    header: (name) => sent[name],
    hasBody: body !== "",
    body: () => Promise.resolve(new TextEncoder().encode(body)),
    onAbort: () => undefined,
  };
}

async function openStage(store: Store = openMemoryStore(), authorize?: Authorize): Promise<Stage> {
  const clock = createVirtualClock(Date.UTC(2026, 0, 1));
  const server = createServer({
    store,
    clock,
    authorize,
    random: { unit: () => 0.5, id: () => "id" },
    courier: { deliver: () => Promise.resolve({ kind: "refused", reason: "none here" }) },
    address: "127.0.0.1",
    publicUrl: () => "http://test",
    onFault: () => undefined,
  });
  servers.push(server);
  const metrics = async (): Promise<string> => {
    const answer = await server.handle(exchange("GET", "/_hapax/metrics"));
    if (!("body" in answer) || !(answer.body instanceof Uint8Array)) throw new Error("no body");
    return new TextDecoder().decode(answer.body);
  };
  const stage: Stage = {
    clock,
    put: async (path, headers) => (await server.handle(exchange("PUT", path, "", headers))).status,
    post: async (path, body, headers) =>
      (await server.handle(exchange("POST", path, body, headers))).status,
    metrics,
    async value(sample) {
      const lines = (await metrics()).split("\n");
      const line = lines.find((each) => each.startsWith(`${sample} `));
      if (line === undefined) throw new Error(`there is no ${sample}`);
      return Number(line.slice(sample.length + 1));
    },
  };
  await stage.put("/s");
  return stage;
}

const epoch = (number: number, sequence: number, id = "p"): Headers => ({
  "producer-id": id,
  "producer-epoch": String(number),
  "producer-seq": String(sequence),
});
const session = (nonce: string, sequence: number): Headers => ({
  "producer-id": "q",
  "producer-session": nonce,
  "producer-seq": String(sequence),
});
const key = (text: string): Headers => ({ "idempotency-key": text });

/** Some of everything, so that no sample is at its start. */
async function useAll(stage: Stage): Promise<void> {
  const mark = "very-own-name";
  await stage.put(`/${mark}`, { "stream-key-max": "1", "stream-key-window": "60" });
  for (const headers of [epoch(0, 0, mark), session(mark, 0), key(mark), key(`${mark}-2`)]) {
    await stage.post(`/${mark}`, "a", headers);
    await stage.post(`/${mark}`, "a", headers);
  }
  await stage.post(`/${mark}`, "a", epoch(0, 9, mark));
}

describe("the text", () => {
  test("every line is of the format, and every family has help and a type", async () => {
    const stage = await openStage();
    await useAll(stage);
    const families = parseMetrics(await stage.metrics());
    expect(families.size).toBeGreaterThan(15);
    for (const [name, { help, type, samples }] of families) {
      expect([name, help !== "", TYPES.includes(type), samples.length > 0]).toEqual([
        name,
        true,
        true,
        true,
      ]);
      const ids = samples.map((sample) => `${sample.name}${[...sample.labels].join()}`);
      expect(new Set(ids).size).toBe(ids.length);
    }
  });

  test("names follow the customs: one prefix, base units, and counters that end in _total", async () => {
    const stage = await openStage();
    for (const [name, { type, samples }] of parseMetrics(await stage.metrics())) {
      expect(name).toMatch(/^hapax_[a-z_]+$/);
      expect(name).not.toMatch(/_(ms|millis|milliseconds|kb|mb|percent)(_|$)/);
      expect([name, name.endsWith("_total")]).toEqual([name, type === "counter"]);
      for (const { value } of samples) expect(value).toBeGreaterThanOrEqual(0);
    }
  });

  test("a histogram's buckets add up, and end with all of it", async () => {
    const stage = await openStage();
    await useAll(stage);
    const families = [...parseMetrics(await stage.metrics())];
    const histograms = families.filter(([, { type }]) => type === "histogram");
    expect(histograms.map(([name]) => name)).toEqual([
      "hapax_commit_seconds",
      "hapax_commit_changes",
    ]);
    for (const [name, { samples }] of histograms) {
      const buckets = samples.filter((sample) => sample.name === `${name}_bucket`);
      const bounds = buckets.map(({ labels }) =>
        Number(labels.get("le")?.replace("Inf", "Infinity")),
      );
      const counts = buckets.map(({ value }) => value);
      expect(bounds).toEqual(bounds.toSorted((one, other) => one - other));
      expect(bounds.at(-1)).toBe(Infinity);
      expect(counts).toEqual(counts.toSorted((one, other) => one - other));
      const of = (end: string): number =>
        samples.find((sample) => sample.name === `${name}_${end}`)?.value ?? -1;
      expect(of("count")).toBe(counts.at(-1));
      expect(of("count")).toBeGreaterThan(0);
      expect(of("sum")).toBeGreaterThanOrEqual(0);
    }
  });

  test("no label holds the name of a stream, a producer or a key", async () => {
    const stage = await openStage();
    const before = parseMetrics(await stage.metrics());
    await useAll(stage);
    const text = await stage.metrics();
    expect(text).not.toContain("very-own-name");
    const shape = (families: ReadonlyMap<string, Family>): readonly string[] =>
      [...families.values()].flatMap(({ samples }) =>
        samples.map(({ name, labels }) => `${name} ${[...labels].join()}`),
      );
    // However much is stored, there are the same samples.
    expect(shape(parseMetrics(text))).toEqual(shape(before));
    const labels = new Set(
      [...parseMetrics(text).values()].flatMap(({ samples }) =>
        samples.flatMap((sample) => [...sample.labels.keys()]),
      ),
    );
    expect([...labels].toSorted()).toEqual(["by", "durability", "le", "outcome", "reason"]);
  });

  test("the parser of this test refuses what is not of the format", () => {
    const head = "# HELP a A.\n# TYPE a gauge\n";
    expect([...parseMetrics(`${head}a{b="c\\"d",e="f"} 1e-7\n`).keys()]).toEqual(["a"]);
    for (const text of [
      `${head}a 1`,
      `${head}b 1\n`,
      `${head}a one\n`,
      `${head}a{b=c} 1\n`,
      `${head}a{b="c"d="e"} 1\n`,
      `${head}a{b="c"} \n`,
      `${head}${head}`,
      "# HELP a A.\n# TYPE a number\na 1\n",
      "a 1\n",
    ]) {
      expect(() => parseMetrics(text), text).toThrow();
    }
  });
});

describe("the numbers", () => {
  test("every append is counted once, by what became of it", async () => {
    const stage = await openStage();
    const steps: readonly (readonly [string, () => Promise<number>])[] = [
      ["accepted", () => stage.post("/s", "abc", epoch(1, 0))],
      ["duplicate", () => stage.post("/s", "abc", epoch(1, 0))],
      ["fenced", () => stage.post("/s", "x", epoch(0, 0))],
      ["gap", () => stage.post("/s", "x", epoch(1, 5))],
      ["epoch_start", () => stage.post("/s", "x", epoch(2, 5))],
      ["accepted", () => stage.post("/s", "de", key("k1"))],
      ["replayed", () => stage.post("/s", "de", key("k1"))],
      ["key_reused", () => stage.post("/s", "x", key("k1"))],
      ["key_expired", () => stage.post("/s", "x", key("017f22e2-79b0-7cc3-98c4-dc0c0c07398f"))],
      ["tail_moved", () => stage.post("/s", "x", { "if-match": "*" })],
      ["content_type_mismatch", () => stage.post("/s", "x", { "content-type": "text/html" })],
      ["accepted", () => stage.post("/s", "f", { "stream-seq": "5" })],
      ["sequence_regression", () => stage.post("/s", "x", { "stream-seq": "4" })],
      ["missing", () => stage.post("/none", "x")],
      ["accepted", () => stage.post("/s", "g", { "stream-closed": "true" })],
      ["closed", () => stage.post("/s", "x")],
      ["already_closed", () => stage.post("/s", "", { "stream-closed": "true" })],
    ];
    const counts = async (): Promise<Record<string, number>> => {
      const family = parseMetrics(await stage.metrics()).get("hapax_appends_total");
      const pairs = (family?.samples ?? []).map(({ labels, value }) => [
        labels.get("outcome") ?? "",
        value,
      ]);
      return Object.fromEntries(pairs) as Record<string, number>;
    };
    for (const [outcome, run] of steps) {
      const before = await counts();
      await run();
      expect(await counts()).toEqual({ ...before, [outcome]: (before[outcome] ?? -1) + 1 });
    }
    expect(await stage.value("hapax_appended_bytes_total")).toBe("abcdefg".length);
  });

  test("a recognised retry is counted by what it was recognised by", async () => {
    const stage = await openStage();
    await stage.put("/content", { "stream-key-from": "content" });
    const of = (by: string): Promise<number> => stage.value(`hapax_duplicates_total{by="${by}"}`);
    for (const [by, path, headers] of [
      ["epoch", "/s", epoch(0, 0)],
      ["session", "/s", session("n1", 0)],
      ["key", "/s", key("k1")],
      ["content", "/content", {}],
    ] as const) {
      await stage.post(path, "a", headers);
      expect([by, await of(by)]).toEqual([by, 0]);
      await stage.post(path, "a", headers);
      await stage.post(path, "a", headers);
      expect([by, await of(by)]).toEqual([by, 2]);
    }
  });

  test("keys are counted while they are remembered, and by why they were forgotten", async () => {
    const stage = await openStage();
    await stage.put("/k", { "stream-key-max": "2", "stream-key-window": "10" });
    const evicted = (reason: string): Promise<number> =>
      stage.value(`hapax_keys_evicted_total{reason="${reason}"}`);
    for (const text of ["1", "2", "3"]) await stage.post("/k", "a", key(text));
    expect(await stage.value("hapax_keys")).toBe(2);
    expect(await stage.value("hapax_key_window_bytes")).toBeGreaterThan(0);
    expect([await evicted("full"), await evicted("age")]).toEqual([1, 0]);
    stage.clock.advance(11_000);
    await stage.post("/k", "a", key("4"));
    expect(await stage.value("hapax_keys")).toBe(1);
    expect([await evicted("full"), await evicted("age")]).toEqual([1, 2]);
    // Keys are forgotten even when no more appends come.
    stage.clock.advance(20_000);
    expect(await stage.value("hapax_keys")).toBe(0);
    expect(await evicted("age")).toBe(3);
    expect(await stage.value("hapax_key_window_bytes")).toBe(0);
  });

  test("the oldest retry tells how much of its window was needed", async () => {
    const stage = await openStage();
    await stage.put("/k", { "stream-key-window": "100" });
    const ratio = (): Promise<number> => stage.value("hapax_key_retry_age_ratio_max");
    expect(await ratio()).toBe(0);
    await stage.post("/k", "a", key("1"));
    stage.clock.advance(25_000);
    await stage.post("/k", "a", key("1"));
    expect(await ratio()).toBeCloseTo(0.25, 2);
    stage.clock.advance(50_000);
    await stage.post("/k", "a", key("1"));
    expect(await ratio()).toBeCloseTo(0.75, 2);
    await stage.post("/k", "b", key("2"));
    await stage.post("/k", "b", key("2"));
    expect(await ratio()).toBeCloseTo(0.75, 2);
  });

  test("a held append is counted when it is held, and shown until it is answered", async () => {
    const stage = await openStage();
    const held = stage.post("/s", "b", { ...epoch(0, 1), prefer: "wait=20" });
    await stage.put("/other");
    expect(await stage.value("hapax_held_appends")).toBe(1);
    expect(await stage.value("hapax_held_total")).toBe(1);
    await stage.post("/s", "a", epoch(0, 0));
    expect(await held).toBe(200);
    expect(await stage.value("hapax_held_appends")).toBe(0);
    expect(await stage.value("hapax_held_total")).toBe(1);
    expect(await stage.value('hapax_appends_total{outcome="accepted"}')).toBe(2);
    expect(await stage.value('hapax_appends_total{outcome="gap"}')).toBe(0);
  });

  test("streams and bytes are those that are stored", async () => {
    const stage = await openStage();
    expect(await stage.value("hapax_streams")).toBe(1);
    await stage.put("/two");
    const before = await stage.value("hapax_stored_bytes");
    await stage.post("/two", "x".repeat(1000));
    expect(await stage.value("hapax_streams")).toBe(2);
    expect((await stage.value("hapax_stored_bytes")) - before).toBeGreaterThanOrEqual(1000);
    expect(await stage.value('hapax_info{durability="memory"}')).toBe(1);
  });

  test("each group commit is observed with its changes", async () => {
    const stage = await openStage();
    const before = await stage.value("hapax_commit_changes_count");
    await Promise.all(["a", "b", "c"].map((body) => stage.post("/s", body)));
    const commits = (await stage.value("hapax_commit_changes_count")) - before;
    expect(commits).toBeGreaterThanOrEqual(1);
    expect(await stage.value("hapax_commit_seconds_count")).toBe(before + commits);
    expect(await stage.value("hapax_commit_changes_sum")).toBe(4);
  });

  test("a failed commit shows as writes that are not open", async () => {
    const store = openFaultyStore(openMemoryStore());
    const stage = await openStage(store);
    expect(await stage.value("hapax_writes_open")).toBe(1);
    store.failNextCommit();
    expect(await stage.post("/s", "a")).toBeGreaterThanOrEqual(500);
    expect(await stage.value("hapax_writes_open")).toBe(0);
  });
});

test("docs/guides/metrics.md lists every metric, with its kind and its labels, and no other", async () => {
  const identity = { name: "ann", grants: [{ actions: [...ACTIONS] }] };
  const confined = { namespace: "/v1/stream/acme", quotas: { appendsPerSecond: 1, streamsMax: 2 } };
  // One in a namespace writes, and one outside of it looks.
  const stage = await openStage(openMemoryStore(), ({ method }) =>
    method === "GET" ? identity : { ...identity, ...confined },
  );
  expect(await stage.put("/v1/stream/acme/a")).toBe(201);
  const page = readFileSync(new URL("../../../docs/guides/metrics.md", import.meta.url), "utf8");
  const rows = [...page.matchAll(/^\| `(hapax_(?!cluster_)\w+)` +\| (\w+) +\| ([^|]*)\|/gm)].map(
    ([, name = "", type = "", labels = ""]) => ({ name, type, labels: labels.trim() }),
  );
  const families = [...parseMetrics(await stage.metrics())].map(([name, { type, samples }]) => {
    const labels = new Set(samples.flatMap((sample) => [...sample.labels.keys()]));
    labels.delete("le");
    return { name, type, labels: [...labels].map((label) => `\`${label}\``).join(", ") };
  });
  const byName = (one: { name: string }, other: { name: string }): number =>
    one.name < other.name ? -1 : 1;
  expect(rows.toSorted(byName)).toEqual(families.toSorted(byName));
  for (const family of ["hapax_appends_total", "hapax_duplicates_total"]) {
    const samples = parseMetrics(await stage.metrics()).get(family)?.samples ?? [];
    for (const { labels } of samples) {
      for (const value of labels.values()) expect(page).toContain(`\`${value}\``);
    }
  }
  // The examples of alerts name metrics that there are.
  const named = new Set(page.match(/\bhapax_(?!cluster_)\w+/g));
  const known = families.flatMap(({ name }) => [
    name,
    `${name}_bucket`,
    `${name}_count`,
    `${name}_sum`,
  ]);
  expect([...named].filter((name) => !known.includes(name))).toEqual([]);
});
