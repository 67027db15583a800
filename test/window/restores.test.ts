// WD4 G60: logs that were copied, restored, cut or mixed up. A window opens with what the log has, or not at all.
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import {
  type DedupWindow,
  fileObjects,
  objectLog,
  openWindow,
  type WindowObjects,
} from "../../src/toolkit/window.ts";
import { MemoryObjects } from "./memory-objects.ts";

const IDS = Array.from({ length: 7 }, (_, at) => `id ${at}`);
const bytesOf = (id: string): Uint8Array => new TextEncoder().encode(`bytes of ${id}`);
const damaged = expect.objectContaining({ code: "data_damaged" });

function open(objects: WindowObjects, snapshots: WindowObjects): Promise<DedupWindow> {
  return openWindow({ log: objectLog(objects, { segmentEntriesMax: 2 }), snapshots });
}

function copyOf(objects: MemoryObjects): MemoryObjects {
  const copy = new MemoryObjects();
  for (const [name, bytes] of objects.all) copy.all.set(name, bytes.slice());
  return copy;
}

async function idsOf(objects: WindowObjects): Promise<string[]> {
  const log = objectLog(objects);
  const ids: string[] = [];
  for (const { segment } of (await log.extent()).segments)
    for await (const { entries } of log.read(segment, 0))
      ids.push(...entries.map(({ id = "" }) => id));
  return ids;
}

/** Opens the log, and writes all ids. Either each is in the log once afterwards, or the log was refused. */
async function outcomeOf(
  objects: WindowObjects,
  snapshots: WindowObjects,
): Promise<"refused" | "whole"> {
  let window: DedupWindow;
  try {
    window = await open(objects, snapshots);
  } catch (error) {
    expect(error).toEqual(damaged);
    return "refused";
  }
  for (const id of IDS) await window.write(id, bytesOf(id));
  await window.close();
  expect((await idsOf(objects)).toSorted()).toEqual(IDS);
  return "whole";
}

/** Writes all ids, with a takeover in the middle. `after` is called after each step. */
async function writeAll(
  objects: WindowObjects,
  snapshots: WindowObjects,
  after: (step: number) => void = () => undefined,
): Promise<DedupWindow> {
  let window = await open(objects, snapshots);
  after(0);
  for (const [index, id] of IDS.entries()) {
    if (index === 4) window = await open(objects, snapshots);
    await window.write(id, bytesOf(id));
    after(index + 1);
  }
  return window;
}

test("WD4 G60 a log that was restored from any older copy never counts lost entries as stored", async () => {
  const [log, snapshots, copies] = [
    new MemoryObjects(),
    new MemoryObjects(),
    [] as MemoryObjects[],
  ];
  const window = await writeAll(log, snapshots, () => copies.push(copyOf(log)));
  await window.snapshot();
  const outcomes = [];
  for (const copy of copies) outcomes.push(await outcomeOf(copy, copyOf(snapshots)));
  // Only the last copy has everything that the snapshot has.
  expect(outcomes).toEqual([...Array(IDS.length).fill("refused"), "whole"]);
});

test("WD4 any older snapshot of the same log makes the same window", async () => {
  const [log, snapshots, copies] = [
    new MemoryObjects(),
    new MemoryObjects(),
    [] as MemoryObjects[],
  ];
  let window = await open(log, snapshots);
  for (const [index, id] of IDS.entries()) {
    if (index === 3) window = await open(log, snapshots);
    await window.write(id, bytesOf(id));
    await window.snapshot();
    copies.push(copyOf(snapshots));
  }
  for (const copy of copies) {
    const next = await open(log, copy);
    expect(next.stats.recovery.hasSnapshot).toBe(true);
    for (const id of IDS) expect((await next.write(id, bytesOf(id))).isDuplicate).toBe(true);
  }
});

test("WD4 G60 snapshots of another log are refused, and those of a log that was restored and went on", async () => {
  const [log, snapshots, other] = [new MemoryObjects(), new MemoryObjects(), new MemoryObjects()];
  const old = new MemoryObjects();
  const window = await writeAll(log, snapshots, (step) => {
    if (step === 5) for (const [name, bytes] of log.all) old.all.set(name, bytes);
  });
  await window.close();
  // The same history, but of another log; and a log that is new.
  await (await writeAll(other, new MemoryObjects())).close();
  expect(await outcomeOf(other, snapshots)).toBe("refused");
  expect(await outcomeOf(new MemoryObjects(), snapshots)).toBe("refused");
  // The copy gets as many entries and segments as the log has, but others.
  const second = await open(old, new MemoryObjects());
  for (const id of ["a", "b", "c", "d", "e"]) await second.write(id, bytesOf(id));
  await second.close();
  await expect(open(old, snapshots)).rejects.toEqual(damaged);
});

test("WD4 a snapshot whose segments were all removed is not used", async () => {
  const [log, snapshots] = [new MemoryObjects(), new MemoryObjects()];
  const first = await open(log, snapshots);
  await first.write("old", bytesOf("old"));
  await first.snapshot();
  const bounds = { keysMax: 1, log: objectLog(log, { segmentEntriesMax: 2 }) };
  const next = await openWindow({ ...bounds, snapshots: new MemoryObjects() });
  await next.write("new", bytesOf("new"));
  await next.truncate(1);
  const last = await open(log, snapshots);
  expect(last.stats.recovery.hasSnapshot).toBe(false);
  expect(last.stats.forgottenToMs).toBeGreaterThan(0);
  expect((await last.write("new", bytesOf("new"))).isDuplicate).toBe(true);
});

test("WD4 two logs that share a place for snapshots do not get each other's", async () => {
  const [one, other, shared] = [new MemoryObjects(), new MemoryObjects(), new MemoryObjects()];
  const [first, second] = [await open(one, shared), await open(other, shared)];
  await first.write("a", bytesOf("a"));
  await second.write("b", bytesOf("b"));
  await first.snapshot();
  // It has the same epoch and number.
  await expect(second.snapshot()).rejects.toEqual(damaged);
  await expect(open(other, shared)).rejects.toEqual(damaged);
  expect((await (await open(one, shared)).write("a", bytesOf("a"))).isDuplicate).toBe(true);
});

test("G60 an object of the log that was cut at any byte is refused", async () => {
  const log = new MemoryObjects();
  const window = await open(log, new MemoryObjects());
  await window.write("id 0", bytesOf("id 0"));
  for (const [name, bytes] of log.all) {
    for (let left = 0; left < bytes.length && name.startsWith("log/"); left += 1) {
      const copy = copyOf(log);
      copy.all.set(name, bytes.subarray(0, left));
      await expect(open(copy, new MemoryObjects())).rejects.toEqual(damaged);
    }
  }
});

test("WD4 a folder that was copied is a log of its own, and an old copy in its place is refused", async () => {
  const root = mkdtempSync(join(tmpdir(), "hapax-window-restores-"));
  try {
    const [log, copy, snapshots] = ["log", "copy", "snapshots"].map((name) => join(root, name));
    const at = (folder = ""): WindowObjects => fileObjects(folder);
    const window = await open(at(log), at(snapshots));
    for (const id of IDS.slice(0, 4)) await window.write(id, bytesOf(id));
    cpSync(log ?? "", copy ?? "", { recursive: true });
    for (const id of IDS.slice(4)) await window.write(id, bytesOf(id));
    await window.close();
    expect(await outcomeOf(at(copy), at(snapshots))).toBe("refused");
    expect(await outcomeOf(at(copy), new MemoryObjects())).toBe("whole");
    expect(await outcomeOf(at(log), at(snapshots))).toBe("whole");
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
});
