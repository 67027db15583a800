// `hapax copy`: a store moves from a directory to PostgreSQL and back, under kills, and stays the same store. docs/formats/postgres.md
import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startNodeServer } from "../../src/streams/runtimes/node.ts";
import { openFileStore } from "../../src/streams/stores/file.ts";
import type { CopyReport } from "../../src/streams/stores/copy/copy.ts";
import type { Store } from "../../src/streams/store.ts";
import { describeWorld, pattern, readAll } from "../../src/testing/store-case-kit.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { hapax } from "../kits/cli-harness.ts";
import { freshSchema, openOnPool } from "./kit.ts";

const reason = whyNoPostgres();
if (reason !== undefined) console.log(`copies to and from databases are not tested: ${reason}`);
const IS_LONG = process.env["HAPAX_LONG"] === "1";
const KILLS = IS_LONG ? 40 : 4;
const SIZES = { segmentBytes: 1 << 16, snapshotBytes: 1 << 17 };

describe.skipIf(reason !== undefined)("hapax copy", () => {
  let server: TestPostgres;
  const dirs: string[] = [];

  beforeAll(async () => {
    server = await startPostgres();
  });

  afterAll(async () => {
    await server.stop();
    for (const dir of dirs) rmSync(dir, { recursive: true, force: true });
  });

  const urlOf = (): string => `postgres://postgres@${encodeURIComponent(server.host)}/postgres`;

  const freshDirectory = (): string => {
    const dir = mkdtempSync(join(tmpdir(), "hapax-copy-"));
    dirs.push(dir);
    return dir;
  };

  const openFile = (dir: string) => openFileStore(dir, { ...SIZES, durability: "os" });
  const openTables = (schema: string) => openOnPool(server.pool, { ...SIZES, schema });

  /** Appends as a producer does. Answers the statuses. */
  const appendAll = async (store: Store, sequences: readonly number[]): Promise<number[]> => {
    const door = await startNodeServer({ store, port: 0, onAudit: () => undefined });
    try {
      const statuses: number[] = [];
      for (const sequence of sequences) {
        const path = `${door.url}/v1/stream/orders/${sequence % 3}`;
        const headers = { "Content-Type": "application/octet-stream" };
        await fetch(path, { method: "PUT", headers });
        const { status } = await fetch(path, {
          method: "POST",
          headers: {
            ...headers,
            "Producer-Id": `writer-${sequence % 3}`,
            "Producer-Epoch": "1",
            "Producer-Seq": String(Math.floor(sequence / 3)),
          },
          body: Uint8Array.from(pattern(sequence === 5 ? 1_300_000 : 9000, sequence)),
        });
        statuses.push(status);
      }
      return statuses;
    } finally {
      await door.stop();
    }
  };

  const contentOf = async (store: Store): Promise<string> => {
    const texts: string[] = [describeWorld(store.world)];
    for (const { id, name, tail } of store.world.byId.values()) {
      const bytes = Buffer.concat(await readAll(store, id, 0, tail));
      texts.push(`${name} ${bytes.length} ${bytes.toString("base64").slice(0, 100_000)}`);
    }
    return texts.join("\n");
  };

  const hasTables = async (schema: string): Promise<boolean> => {
    const { rows } = await server.pool.query("SELECT to_regclass($1) IS NOT NULL AS is_there", [
      `${schema}.hapax_cluster`,
    ]);
    return (rows as { is_there: boolean }[])[0]?.is_there === true;
  };

  /** Kills copies at moments of their whole time, then lets one end. */
  const copyUnderKills = async (from: string, to: string, schema: string) => {
    let kills = 0;
    let wholeMs = 400;
    for (let attempt = 0; ; attempt += 1) {
      const program = fileURLToPath(new URL("copier.mjs", import.meta.url));
      const child = spawn(process.execPath, [program, from, to, schema], {
        stdio: ["ignore", "pipe", "pipe"],
      });
      let [out, errors] = ["", ""];
      let begunMs = 0;
      let timer: NodeJS.Timeout | undefined;
      child.stderr.on("data", (chunk: Buffer) => (errors += chunk.toString()));
      child.stdout.on("data", (chunk: Buffer) => {
        out += chunk.toString();
        if (begunMs > 0 || kills >= KILLS) return;
        begunMs = performance.now();
        timer = setTimeout(
          () => child.kill("SIGKILL"),
          ((attempt % KILLS) + 0.5) * (wholeMs / KILLS),
        );
      });
      const code = await new Promise((resolve) => {
        child.once("close", (exit, signal) => resolve(signal ?? exit));
      });
      clearTimeout(timer);
      if (code === "SIGKILL") {
        kills += 1;
        wholeMs *= 1 + 0.6 / KILLS; // A later one gets further.
        if (to.startsWith("postgres") && (await hasTables(schema))) {
          await expect(openTables(schema)).rejects.toMatchObject({ code: "format_unknown" });
        } else if (!to.startsWith("postgres") && readdirSync(to).includes("COPY")) {
          await expect(openFile(to)).rejects.toMatchObject({ code: "directory_unusable" });
        }
        continue;
      }
      if (code !== 0) throw new Error(`the copy ended with ${String(code)}: ${errors}`);
      return { kills, report: JSON.parse(out.split("\n")[1] ?? "") as CopyReport };
    }
  };

  test("G101 under kills in both directions everything reads the same, and a retry after the move is a duplicate", async () => {
    const dir = freshDirectory();
    const first = await openFile(dir);
    const sequences = Array.from({ length: 60 }, (_, at) => at);
    expect(new Set(await appendAll(first, sequences.slice(0, 30)))).toEqual(new Set([200]));
    const next = await openFile(dir); // appendAll has closed it
    expect(new Set(await appendAll(next, sequences.slice(0, 60)))).toEqual(new Set([200, 204]));
    const again = await openFile(dir);
    const content = await contentOf(again);
    await again.close();

    const schema = freshSchema();
    const there = await copyUnderKills(dir, urlOf(), schema);
    const tables = await openTables(schema);
    expect(await contentOf(tables)).toBe(content);
    expect(new Set(await appendAll(tables, sequences))).toEqual(new Set([204]));
    const more = await openTables(schema);
    expect(await appendAll(more, [60, 61, 62])).toEqual([200, 200, 200]);
    const before = await openTables(schema);
    const after = await contentOf(before);
    await before.close();

    const target = freshDirectory();
    const back = await copyUnderKills(urlOf(), target, schema);
    expect(there.kills + back.kills).toBeGreaterThanOrEqual(KILLS / 2);
    expect(back.report.storeId).toBe(there.report.storeId);
    expect(back.report.incarnation).toBeGreaterThan(there.report.incarnation);
    const file = await openFile(target);
    expect(await contentOf(file)).toBe(after);
    expect(new Set(await appendAll(file, [...sequences, 60, 61, 62]))).toEqual(new Set([204]));
    expect(await hapax(["verify", target])).toMatchObject({ code: 0 });
    console.log(`copies: ${there.kills} and ${back.kills} kills, ${back.report.frames} frames`);
  }, 300_000);

  test("G101 a store of a living server is neither read nor written, and a target that has something stays as it is", async () => {
    const dir = freshDirectory();
    const schema = freshSchema();
    const copy = (from: string, to: string) =>
      hapax(["copy", from, to, "--schema", schema, "--durability", "os"]);
    const file = await openFile(dir);
    expect(await copy(dir, urlOf())).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("uses directory"),
    });
    await file.close();
    const full = freshDirectory();
    writeFileSync(join(full, "notes.txt"), "of another program");
    const tables = await openOnPool(server.pool, { schema, leaseMs: 400 });
    const target = freshDirectory();
    expect(await copy(urlOf(), target)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("is alive"),
    });
    expect(await copy(dir, urlOf())).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("has streams already"),
    });
    await tables.close();
    expect(await copy(urlOf(), full)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("is not empty"),
    });
    expect(readdirSync(full)).toEqual(["notes.txt"]);
    expect(await copy(dir, target)).toMatchObject({ code: 2 });
    expect(await copy(urlOf(), urlOf())).toMatchObject({ code: 2 });
    expect(await copy(join(dir, "nothing"), urlOf())).toMatchObject({ code: 1 });
    expect(await copy(urlOf(), target)).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/equal on both sides: SHA-256 [0-9a-f]{64}\n/),
    });
  });

  test("G101 what differs in the target is found before the target counts", async () => {
    const dir = freshDirectory();
    const first = await openFile(dir);
    await appendAll(first, [0, 1, 2]);
    const schema = freshSchema();
    // The copy is held up after its frames have come, and one of them changes.
    let isHarmed = false;
    const { copyBetween } = await import("../../src/streams/stores/copy/between.ts");
    const copying = copyBetween(
      { from: dir, to: urlOf() },
      {
        schema,
        durability: "os",
        leaseMs: 300,
        async onProgress(step) {
          if (step !== "comparing" || isHarmed) return;
          isHarmed = true;
          await server.pool.query(`UPDATE ${schema}.hapax_segment SET crc_before = crc_before + 1`);
        },
      },
    );
    await expect(copying).rejects.toMatchObject({ code: "data_damaged" });
    expect(isHarmed).toBe(true);
    await expect(openTables(schema)).rejects.toMatchObject({ code: "format_unknown" });
  });
  test("G101 a directory with an unfinished copy is opened by no server and no tool", async () => {
    const dir = freshDirectory();
    await (await openFile(dir)).close();
    writeFileSync(join(dir, "COPY"), "0123456789abcdef0123456789abcdef\n");
    await expect(openFile(dir)).rejects.toMatchObject({ code: "directory_unusable" });
    for (const command of ["verify", "repair", "inspect"]) {
      expect(await hapax([command, dir])).toMatchObject({
        code: 1,
        stderr: expect.stringContaining("not finished"),
      });
    }
  });

  test("G144 an incarnation goes with the store into a database, and begins there with --in-place", async () => {
    const dir = freshDirectory();
    const store = await openFile(dir);
    expect(await appendAll(store, [0])).toEqual([200]);
    expect(await hapax(["restore", "--in-place", dir])).toMatchObject({ code: 0 });
    const schema = freshSchema();
    const words = ["--schema", schema, "--durability", "os"];
    expect(await hapax(["copy", dir, urlOf(), ...words])).toMatchObject({ code: 0 });
    const copied = await openTables(schema);
    const { incarnation } = copied.world;
    await copied.close();
    expect(incarnation.number).toBe(2);
    const more = ["--store", urlOf(), "--schema", schema, "--json"];
    const told = await hapax(["restore", "--in-place", ...more], { id: "9ab1c3d4".repeat(4) });
    expect(told).toMatchObject({ code: 0, stdout: '{"incarnation":"3-9ab1c3d4"}\n' });
    const next = await openTables(schema);
    expect(next.world.incarnation).toEqual({ number: 3, mark: 0x9ab1c3d4 });
    expect(next.world.streams.size).toBe(1);
    await expect(next.backup?.()).rejects.toMatchObject({ code: "unsupported" });
    await next.close();
  });
});
