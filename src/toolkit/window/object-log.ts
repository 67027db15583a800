/**
 * A log in objects that are written once: in object storage, or in files. toolkit/rules/window-objects.ts has the format.
 *
 *   WD6  a writer that was fenced cannot write. A writer that opens the log seals the last segment: it puts the seal at the
 *        place where the next batch would go. Then it begins a segment of its own. The writer before it finds its place
 *        occupied.
 *
 * A writer writes one batch at a time, so a segment has no holes. A place that is occupied by the same bytes is a call of our own
 * whose answer was lost. Heads have all numbers from 0 on, and are never removed: the last segment is found by looking for
 * heads, never by a list, which may be late.
 */

import { decodeText, isSameBytes, utf8Of } from "../../base/bytes.ts";
import { HapaxError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoint.ts";
import { hexOf } from "../../base/hex.ts";
import { Unreadable } from "../../base/packed.ts";
import { type Random, systemRandom } from "../../base/random.ts";
import type { LogPosition } from "../rules/window.ts";
import {
  decodeLogObject,
  encodeLogObject,
  type LogObject,
  logObjectName,
} from "../rules/window-objects.ts";
import { Check } from "../once/check.ts";
import type {
  ClientLog,
  ClientPositions,
  LogBatch,
  LogExtent,
  LogSegment,
  WindowWriter,
  StoredBatch,
} from "./log.ts";
import type { WindowObjects } from "./objects.ts";

/** Options of a log in objects. All are optional. */
export interface ObjectLogOptions {
  /**
   * How many entries a segment may have before the next one begins, at most 1,000,000. A segment is what `truncate` removes.
   * Default 100,000.
   */
  readonly segmentEntriesMax?: number;
  /** Replaces the source of randomness, for tests. */
  readonly random?: Random;
}

/** A log in objects: a window writes to it, and any program can read it. */
export interface ObjectLog extends ClientLog {
  /**
   * Removes the entries of all segments before this one. What a window still remembers must stay: `DedupWindow.truncate` takes
   * care of that. Three objects of a few bytes stay for each removed segment, so that a late writer cannot create them again.
   */
  truncate(beforeSegment: number): Promise<void>;
}

const PROBE = "probe";
const PARALLEL_GETS = 16;
/** Two programs that open a log fence each other. One of them stops at last. */
const CONTESTS_MAX = 100;

type Head = Extract<LogObject, { readonly kind: "head" }>;

/**
 * Makes a log from a store of objects. Sends nothing yet. `openWindow` opens the log. It throws `unsupported` if the store
 * overwrites an object although asked to create a new one: then two writers could overwrite each other.
 *
 * ```ts
 * import { mkdtemp } from "node:fs/promises";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { fileObjects, objectLog, openWindow } from "hapax/window";
 *
 * const objects = fileObjects(await mkdtemp(join(tmpdir(), "log-")));
 * const log = objectLog(objects, { segmentEntriesMax: 1_000 });
 * const window = await openWindow({ log, snapshots: objects });
 * await window.write("order 17", new TextEncoder().encode("paid"));
 * await window.close();
 *
 * // Any program can read the log.
 * const texts: string[] = [];
 * for (const { segment } of (await log.extent()).segments)
 *   for await (const { entries } of log.read(segment, 0))
 *     for (const { bytes } of entries) texts.push(new TextDecoder().decode(bytes));
 * console.assert(texts.join() === "paid");
 * ```
 */
export function objectLog(objects: WindowObjects, options: ObjectLogOptions = {}): ObjectLog {
  const check = new Check();
  const { segmentEntriesMax, random = systemRandom } = options;
  const entriesMax = check.whole("segmentEntriesMax", segmentEntriesMax, 100_000, 1, 1_000_000);
  check.end();
  return new Log(objects, entriesMax, random);
}

class Log implements ObjectLog {
  readonly positions = "client";
  readonly isOrdered = true;
  readonly #objects: WindowObjects;
  readonly #entriesMax: number;
  readonly #random: Random;

  constructor(objects: WindowObjects, entriesMax: number, random: Random) {
    this.#objects = objects;
    this.#entriesMax = entriesMax;
    this.#random = random;
  }

  async extent(): Promise<LogExtent> {
    const last = await this.#lastSegment();
    const first = await firstWithout((segment) => this.#get(segment, "gone"));
    const numbers = Array.from({ length: Math.max(0, last + 1 - first) }, (_, at) => first + at);
    const heads = await this.#heads(numbers.concat(last + 1));
    const segments = numbers.map((segment, at): LogSegment => {
      const nonce = heads[at]?.nonce;
      return {
        segment,
        isSealed: segment < last,
        endedAtMs: heads[at + 1]?.atMs,
        writer: nonce && hexOf(nonce),
      };
    });
    const gone = first === 0 ? undefined : await this.#get(first - 1, "gone");
    return { segments, removedToMs: gone?.kind === "gone" ? gone.toMs : undefined };
  }

  async *read(segment: number, start: number): AsyncGenerator<StoredBatch, void> {
    for (let at = start; ;) {
      let object = await this.#get(segment, at);
      if (object === undefined) {
        // The last segment may end here. In all others a seal is the end, and it may have come since.
        if ((await this.#get(segment + 1, "head")) === undefined) return;
        object = await this.#get(segment, at);
      }
      if (object?.kind === "seal") return;
      if (object?.kind === "batch") {
        yield { start: at, ...unpacked(object) };
        at += object.entries.length;
        continue;
      }
      if (object === undefined && (await this.#get(segment, "gone")) !== undefined) return;
      throw damaged(logObjectName(segment, at), "the batch that belongs here is missing");
    }
  }

  async open(writer: WindowWriter): Promise<ClientPositions> {
    await this.#probe();
    const nonce = bytesOfHex(this.#random.id());
    for (let contests = 0; contests < CONTESTS_MAX; contests += 1) {
      const last = await this.#lastSegment();
      const before = last < 0 ? undefined : await this.#head(last);
      if (before !== undefined && writer.token !== undefined && before.token > writer.token)
        throw fencedError(`a writer with token=${before.token} has the log`);
      const sealed = last < 0 ? undefined : await this.#seal(last, writer.readTo.get(last), nonce);
      await failpoint("window.sealed");
      const head: Head = {
        kind: "head",
        epoch: (before?.epoch ?? 0) + 1,
        token: Math.max(writer.token ?? -1, before?.token ?? -1),
        nonce,
        atMs: Math.max(writer.newestMs, before?.atMs ?? 0, sealed?.newestMs ?? 0),
        entriesBefore: sealed?.entries ?? 0,
      };
      if (await this.#create(last + 1, "head", head)) {
        await failpoint("window.claimed");
        return new Writer(this.#objects, this.#entriesMax, head, last + 1);
      }
    }
    throw new HapaxError("in_progress", "other programs open the same log all the time");
  }

  async truncate(beforeSegment: number): Promise<void> {
    const { segments } = await this.extent();
    // An earlier call may have ended early.
    const [first] = segments;
    if (first !== undefined && first.segment > 0) await this.#removeBatches(first.segment - 1);
    for (const { segment, isSealed, endedAtMs } of segments) {
      if (segment >= beforeSegment || !isSealed) return;
      await this.#create(segment, "gone", { kind: "gone", toMs: endedAtMs ?? 0 });
      await failpoint("window.gone");
      await this.#removeBatches(segment);
    }
  }

  /** A late list shows less: the next call removes the rest. The seal has the greatest number, and stays. */
  async #removeBatches(segment: number): Promise<void> {
    const folder = logObjectName(segment, "head").replace(/head$/, "");
    const names = (await this.#objects.list(folder)).filter((name) => /\/\d+$/.test(name));
    for (const name of names.toSorted().slice(0, -1)) await this.#objects.remove(name);
  }

  /** A store that ignores conditions says `stored` each time. The object stays, so that nothing has to be removed. */
  async #probe(): Promise<void> {
    const outcomes = [];
    for (let call = 0; call < 2; call += 1) {
      outcomes.push(await this.#objects.create(PROBE, utf8Of("does the store honour conditions?")));
    }
    if (outcomes[1] === "occupied") return;
    const message =
      "the store replaces an object though it should only create it (If-None-Match: *)";
    throw new HapaxError("unsupported", message);
  }

  /** Seals a segment: reads to its end, and puts the seal there. */
  async #seal(
    segment: number,
    from: number | undefined,
    nonce: Uint8Array,
  ): Promise<{ readonly entries: number; readonly newestMs: number }> {
    let newestMs = 0;
    for (let at = from ?? 0; ;) {
      for await (const { start, entries, atMs } of this.read(segment, at)) {
        at = start + entries.length;
        newestMs = atMs;
      }
      // Also if a seal is there: what `create` finds is durable then, and all that was read before it.
      const isSealed =
        (await this.#create(segment, at, { kind: "seal", nonce })) ||
        (await this.#get(segment, at))?.kind === "seal";
      // If it is a batch, the writer before was faster once more: read on from there.
      if (isSealed) return { entries: at, newestMs };
    }
  }

  async #lastSegment(): Promise<number> {
    return (await firstWithout((segment) => this.#get(segment, "head"))) - 1;
  }

  async #heads(segments: readonly number[]): Promise<(Head | undefined)[]> {
    const heads: (Head | undefined)[] = [];
    for (let at = 0; at < segments.length; at += PARALLEL_GETS) {
      const some = segments.slice(at, at + PARALLEL_GETS);
      heads.push(...(await Promise.all(some.map((segment) => this.#head(segment)))));
    }
    return heads;
  }

  async #head(segment: number): Promise<Head | undefined> {
    const object = await this.#get(segment, "head");
    if (object === undefined || object.kind === "head") return object;
    throw damaged(logObjectName(segment, "head"), "it is no head");
  }

  #get(segment: number, what: number | "head" | "gone"): Promise<LogObject | undefined> {
    return getObject(this.#objects, logObjectName(segment, what));
  }

  #create(segment: number, what: number | "head" | "gone", object: LogObject): Promise<boolean> {
    return createObject(this.#objects, logObjectName(segment, what), encodeLogObject(object));
  }
}

/** The open log of one writer. */
class Writer implements ClientPositions {
  readonly epoch: number;
  readonly #objects: WindowObjects;
  readonly #entriesMax: number;
  #head: Head;
  #segment: number;
  #next = 0;

  constructor(objects: WindowObjects, entriesMax: number, head: Head, segment: number) {
    this.#objects = objects;
    this.#entriesMax = entriesMax;
    this.#head = head;
    this.#segment = segment;
    this.epoch = head.epoch;
  }

  async next(): Promise<LogPosition | "fenced"> {
    if (this.#next >= this.#entriesMax && !(await this.#roll())) return "fenced";
    return { segment: this.#segment, entry: this.#next };
  }

  async append(position: LogPosition, batch: LogBatch): Promise<"stored" | "fenced"> {
    const name = logObjectName(position.segment, position.entry);
    const bytes = encodeLogObject(packed(batch));
    if (!(await createObject(this.#objects, name, bytes))) return "fenced";
    this.#next = position.entry + batch.entries.length;
    this.#head = { ...this.#head, atMs: batch.atMs };
    return "stored";
  }

  /** Begins the next segment. A second try writes the same bytes. */
  async #roll(): Promise<boolean> {
    const { nonce } = this.#head;
    const seal = encodeLogObject({ kind: "seal", nonce });
    const sealAt = logObjectName(this.#segment, this.#next);
    if (!(await createObject(this.#objects, sealAt, seal))) return false;
    await failpoint("window.rolled");
    const head: Head = { ...this.#head, entriesBefore: this.#next };
    const headAt = logObjectName(this.#segment + 1, "head");
    if (!(await createObject(this.#objects, headAt, encodeLogObject(head)))) return false;
    this.#segment += 1;
    this.#next = 0;
    return true;
  }
}

/** Creates the object. True if it is there now; false if the place has another one. */
async function createObject(
  objects: WindowObjects,
  name: string,
  bytes: Uint8Array,
): Promise<boolean> {
  if ((await objects.create(name, bytes)) === "stored") return true;
  return isSameBytes(await objects.get(name), bytes);
}

async function getObject(objects: WindowObjects, name: string): Promise<LogObject | undefined> {
  const bytes = await objects.get(name);
  if (bytes === undefined) return undefined;
  try {
    return decodeLogObject(bytes);
  } catch (error) {
    if (error instanceof Unreadable) throw damaged(name, error.message);
    throw error;
  }
}

/** The first number that has none, if all before it have one: with few questions. */
async function firstWithout(get: (number: number) => Promise<unknown>): Promise<number> {
  let [low, high] = [-1, 0];
  while ((await get(high)) !== undefined) [low, high] = [high, high * 2 + 1];
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if ((await get(middle)) === undefined) high = middle;
    else low = middle;
  }
  return high;
}

function packed({ atMs, entries }: LogBatch): LogObject {
  const packedEntries = entries.map(({ id, bytes }) => {
    return { id: id === undefined ? undefined : utf8Of(id), bytes };
  });
  return { kind: "batch", atMs, entries: packedEntries };
}

function unpacked({ atMs, entries }: Extract<LogObject, { readonly kind: "batch" }>): LogBatch {
  const unpackedEntries = entries.map(({ id, bytes }) => {
    return { id: id === undefined ? undefined : decodeText(id), bytes };
  });
  return { atMs, entries: unpackedEntries };
}

function bytesOfHex(digits: string): Uint8Array {
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

function damaged(name: string, what: string): HapaxError {
  return new HapaxError("data_damaged", `${what} object=${name}`);
}

/** The error of every call of a writer that was fenced. */
export function fencedError(why: string): HapaxError {
  return new HapaxError(
    "lease_lost",
    `${why}; open the window again, or leave the log to the other writer`,
  );
}
