// The whole of an object, exported and imported, in a real workerd: value for value, or refused.
import { afterAll, beforeAll, expect, test } from "vitest";
import { requirePart } from "../client/runtimes-kit.ts";
import { whyNoWorkerd } from "../kits/workerd-objects.ts";
import { eventually, type ShopStage, startShop } from "./shop-stage.ts";

const reason = whyNoWorkerd();
const isLong = process.env["HAPAX_LONG"] !== undefined;
let stage: ShopStage;

beforeAll(async () => {
  if (reason === undefined) stage = await startShop();
}, 60_000);

afterAll(() => stage.stop());

const inWorkerd = (name: string, run: () => Promise<void>): void => {
  test(name, { timeout: 180_000 }, async (context) => {
    requirePart(context, reason === undefined ? "workerd" : undefined, reason ?? "");
    await run();
  });
};

const STATEMENTS = [
  "CREATE TABLE kinds (a, b TEXT, c INTEGER, d REAL, e BLOB, f AS (c + 1))",
  "INSERT INTO kinds (a, b, c, d, e) VALUES (9007199254740993, 'text', -5, 0.1, x'00ff10')",
  "INSERT INTO kinds (rowid, a, b, d) VALUES (77, 1.0, 'it''s', 9e999)",
  "INSERT INTO kinds (a) VALUES (x'')",
  "CREATE TABLE pairs (x TEXT, y INTEGER, PRIMARY KEY (x, y)) WITHOUT ROWID",
  "CREATE TABLE counted (id INTEGER PRIMARY KEY AUTOINCREMENT, of INTEGER REFERENCES parents (id))",
  "CREATE TABLE parents (id INTEGER PRIMARY KEY)",
  "INSERT INTO parents VALUES (1)",
  "INSERT INTO counted (of) VALUES (1), (1)",
  "DELETE FROM counted WHERE id = 2",
  "CREATE INDEX by_b ON kinds (b)",
  "CREATE VIEW seen AS SELECT b FROM kinds",
  "CREATE TRIGGER on_pair AFTER INSERT ON pairs BEGIN DELETE FROM kinds WHERE 0; END",
];

const READ = [
  "SELECT rowid, typeof(a) AS t, CAST(a AS TEXT) AS a, b, c, typeof(d) AS u, CAST(d AS TEXT) AS d, hex(e) AS e, f FROM kinds ORDER BY rowid",
  "SELECT count(*) AS count, sum(y) AS sum, max(x) AS last FROM pairs",
  "SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite%' ORDER BY name",
  "SELECT id, of FROM counted",
  "SELECT name, seq FROM sqlite_sequence ORDER BY name",
  "SELECT id FROM effects ORDER BY n",
];

const readAll = async (name: string): Promise<unknown> => {
  const all = [];
  for (const text of READ) all.push(await stage.shop(name).json("/sql", { text }));
  return all;
};

async function makeOriginal(name: string, pairs: number): Promise<readonly string[]> {
  const object = stage.shop(name);
  for (const text of STATEMENTS) await object.json("/sql", { text });
  const many = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${pairs})
    INSERT INTO pairs SELECT 'p' || (i % 7), i FROM n`;
  await object.json("/sql", { text: many });
  await object.json("/process", { id: "once" });
  await object.json("/set", { id: "tick", ms: 3_600_000 });
  return object.json("/export");
}

async function importInto(name: string, chunks: readonly string[]): Promise<unknown> {
  return stage.shop(name).json("/import", chunks);
}

inWorkerd(
  "G69 an object comes out of an import as it went into the export, and goes on as it",
  async () => {
    const chunks = await makeOriginal("original", isLong ? 20_000 : 900);
    const wanted = await readAll("original");
    expect(chunks.length).toBeGreaterThan(4);
    const copy = stage.shop("copy");
    await copy.json("/process", { id: "of the copy" });
    expect(await importInto("copy", chunks)).toBe("imported");
    // What the object has in memory does not fit any more, and it says so.
    const stale = await copy.fetch("/process", {
      method: "POST",
      body: JSON.stringify({ id: "b" }),
    });
    expect(await stale.text()).toContain("call ctx.abort()");
    await copy.abort();
    expect(await readAll("copy")).toEqual(wanted);
    expect(await copy.json("/process", { id: "once" })).toMatchObject({ isDuplicate: true });
    expect(await copy.json("/process", { id: "of the copy" })).toMatchObject({
      isDuplicate: false,
    });
    const { named } = await copy.json<{ named: [string, number][] }>("/alarms");
    expect(named.map(([alarm]) => alarm)).toContain("tick");
    const [counted] = await copy.json<{ id: number }[]>("/sql", {
      text: "INSERT INTO counted (of) VALUES (1) RETURNING id",
    });
    expect(counted?.id).toBe(3);
  },
);

inWorkerd(
  "G69 a flipped byte in any chunk, a missing, swapped, repeated or added chunk: refused, and nothing has changed",
  async () => {
    const chunks = await makeOriginal("flipped", 300);
    const target = stage.shop("target");
    await target.json("/process", { id: "mine" });
    const before = await readAll("target").catch(() => undefined);
    const refused = async (what: readonly string[]): Promise<void> => {
      expect(await importInto("target", what)).toMatchObject({ code: "invalid_request" });
    };
    for (const [at, chunk] of chunks.entries()) {
      const bytes = Buffer.from(chunk, "base64");
      const places = isLong
        ? [0, 31, 33, 37, 40, 80, bytes.length - 1]
        : [at % bytes.length, bytes.length - 1];
      for (const place of places) {
        const flipped = Buffer.from(bytes);
        flipped[place] = (flipped[place] ?? 0) ^ (1 << (at % 8));
        await refused(chunks.with(at, flipped.toString("base64")));
      }
    }
    await refused([]);
    await refused(chunks.slice(0, -1));
    await refused(chunks.slice(1));
    await refused(chunks.toSpliced(1, 1));
    await refused(chunks.toSpliced(1, 0, chunks[0] ?? ""));
    await refused([...chunks, chunks.at(-1) ?? ""]);
    await refused(chunks.with(0, chunks[1] ?? "").with(1, chunks[0] ?? ""));
    expect(await stage.effects("target")).toEqual(["mine"]);
    expect(await readAll("target").catch(() => undefined)).toEqual(before);
    expect(await target.json("/process", { id: "mine" })).toMatchObject({ isDuplicate: true });
  },
);

inWorkerd("G69 an import that is lost before its end leaves the object as it was", async () => {
  const chunks = await makeOriginal("lost", 300);
  await stage.shop("lost target").json("/process", { id: "mine" });
  const importing = importInto("lost target", chunks).catch(() => "lost");
  await stage.host.restart();
  const outcome = await importing;
  const effects = await eventually(
    () => stage.effects("lost target"),
    () => undefined,
  );
  // It was swapped as a whole, or not at all.
  expect([["mine"], ["once"]]).toContainEqual(effects);
  if (outcome === "imported") expect(effects).toEqual(["once"]);
});
