/**
 * A dedup window in front of a log that has none: writes with ids, each stored once for as long as its id is remembered.
 *
 * toolkit/rules/window.ts decides, recovery.ts makes the window whole before the first write, batches.ts brings writes to the
 * log. This file holds the callers: those who wait, and those who are refused.
 */

import { unlessAborted } from "../../base/aborts.ts";
import { HapaxError } from "../../base/errors.ts";
import type { KeyMark } from "../../base/key-window.ts";
import { keyTimeMs } from "../../protocol/key.ts";
import { Check } from "../once/check.ts";
import { decideWrite, type LogPosition, type WindowState } from "../rules/window.ts";
import { Batches, type OpenLog, UnconfirmedWrite } from "./batches.ts";
import { fencedError } from "./object-log.ts";
import { type ResolvedWindow, resolveWindow, type WindowOptions } from "./options.ts";
import { markOfEntry, WindowReader } from "./recovery.ts";
import { saveSnapshot } from "./snapshots.ts";

/** The result of `DedupWindow.write()`. */
export interface WindowWrite {
  /** Where the entry is: the same for every write of its id. */
  readonly position: { readonly segment: number; readonly entry: number };
  /** An earlier call has written it, or is writing it. */
  readonly isDuplicate: boolean;
}

/** The sizes and counts of a window. */
export interface WindowStats {
  /** How many ids are remembered. */
  readonly keys: number;
  /** How many writes are unconfirmed. */
  readonly pending: number;
  /** Memory of the ids, in bytes. */
  readonly memoryBytes: number;
  /** Log time of the newest id that was forgotten; undefined if none was. */
  readonly forgottenToMs: number | undefined;
  /** How many writes were stored without certainty that they are new: their ids have no time, and the window has forgotten ids. */
  readonly unproven: number;
  /** How many snapshots were written, and how many attempts failed. */
  readonly snapshots: number;
  readonly snapshotFailures: number;
  /** How the window was opened: whether it had a snapshot, and how many entries of the log it read. */
  readonly recovery: { readonly hasSnapshot: boolean; readonly entries: number };
}

/** A window that this program has open. It is the only writer of its log. */
export interface DedupWindow extends AsyncDisposable {
  /** Rises with each writer of the log. */
  readonly epoch: number;
  readonly stats: WindowStats;
  /**
   * Stores the bytes under the id, unless the id was stored before. Resolves when the entry is durable. `sentAtMs` is the time of
   * the first attempt, by the sender's clock; ids that are UUIDv7 or ULID carry it. Without an id the entry is stored each time.
   * Calls that do not wait for each other have no order.
   *
   * Throws `unreachable` if the outcome is not known in time: write again under the same id. Throws `key_reused` if the id was
   * stored with other bytes, `key_expired` if the window may have forgotten the id, `too_many` if too many writes are unconfirmed
   * and `onFull` is `refuse`, `lease_lost` if another writer has the log, and `store_closed` after `close`.
   */
  write(
    id: string | undefined,
    bytes: Uint8Array,
    options?: { readonly sentAtMs?: number; readonly signal?: AbortSignal },
  ): Promise<WindowWrite>;
  /** Writes a snapshot now. The window also does so by itself. */
  snapshot(): Promise<void>;
  /**
   * Removes the entries of all segments before this one from an `objectLog`. Throws `invalid_request` if the window remembers an
   * id in one of them.
   */
  truncate(beforeSegment: number): Promise<void>;
  /** Waits for unconfirmed writes, writes a snapshot, and ends. The log stays as it is, and can be opened again. */
  close(): Promise<void>;
}

const LABELS = { primitive: "window" };

/**
 * Opens a window in front of a log: fences the previous writer, loads the newest snapshot, and reads the ids that the log has
 * after it. Throws `invalid_options`, `unsupported` if the store would let two writers overwrite each other, `data_damaged` if
 * the log has lost entries, `lease_lost` if the lease is not the newest, and what log and store throw.
 *
 * ```ts
 * import { mkdtemp } from "node:fs/promises";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { fileObjects, objectLog, openWindow } from "hapax/window";
 *
 * const objects = fileObjects(await mkdtemp(join(tmpdir(), "orders-")));
 * const window = await openWindow({ log: objectLog(objects), snapshots: objects });
 * const bytes = new TextEncoder().encode("paid");
 * const first = await window.write("order 17", bytes);
 * const again = await window.write("order 17", bytes);
 * console.assert(!first.isDuplicate && again.isDuplicate);
 * console.assert(again.position.entry === first.position.entry);
 * await window.close();
 * ```
 */
export async function openWindow(options: WindowOptions): Promise<DedupWindow> {
  const resolved = resolveWindow(options);
  options.signal?.throwIfAborted();
  return await unlessAborted(opened(options, resolved), options.signal);
}

async function opened(options: WindowOptions, resolved: ResolvedWindow): Promise<DedupWindow> {
  const { log, snapshots, writer: lease, signal } = options;
  const reader = await WindowReader.begin(log, snapshots, resolved, resolved.digest);
  await reader.catchUp(signal);
  // A caller that gave up must not fence the writer that works.
  signal?.throwIfAborted();
  requireLease(lease?.signal);
  const { readTo } = reader;
  const writer = { token: lease?.token, readTo, newestMs: reader.state.newestMs };
  const open: OpenLog =
    log.positions === "client"
      ? { positions: "client", writer: await log.open(writer) }
      : { positions: "log", writer: await log.open(writer) };
  await reader.catchUp(signal);
  signal?.throwIfAborted();
  requireLease(lease?.signal);
  return new Window(options, resolved, reader, open);
}

function requireLease(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw fencedError("the lease of the writer is lost");
}

class Window implements DedupWindow {
  readonly epoch: number;
  readonly #given: WindowOptions;
  readonly #options: ResolvedWindow;
  readonly #reader: WindowReader;
  readonly #batches: Batches;
  readonly #writes = new Map<string, UnconfirmedWrite>();
  readonly #room = new Set<() => void>();
  readonly #onLeaseLost = (): void => this.#end(fencedError("the lease of the writer is lost"));
  #pending = 0;
  #pendingBytes = 0;
  #unproven = 0;
  #newIds = 0;
  #sequence = 0;
  #snapshots = 0;
  #snapshotFailures = 0;
  #cancelTimer: (() => void) | undefined;
  #saving: Promise<void> | undefined;
  #ended: Error | undefined;

  constructor(given: WindowOptions, options: ResolvedWindow, reader: WindowReader, log: OpenLog) {
    this.#given = given;
    this.#options = options;
    this.#reader = reader;
    this.epoch = log.writer.epoch;
    this.#batches = new Batches(
      log,
      reader,
      options,
      (writes) => this.#noteStored(writes),
      (error) => this.#end(error),
    );
    given.writer?.signal.addEventListener("abort", this.#onLeaseLost);
    // What was read since the snapshot is in none.
    this.#newIds = reader.report.entries;
    if (this.#newIds >= options.snapshotKeys) this.#saveLater();
  }

  get #state(): WindowState {
    return this.#reader.state;
  }

  get stats(): WindowStats {
    const { size, memoryBytes, forgottenToMs } = this.#state;
    return {
      keys: size,
      pending: this.#pending,
      memoryBytes,
      forgottenToMs: forgottenToMs < 0 ? undefined : forgottenToMs,
      unproven: this.#unproven,
      snapshots: this.#snapshots,
      snapshotFailures: this.#snapshotFailures,
      recovery: this.#reader.report,
    };
  }

  async write(
    id: string | undefined,
    bytes: Uint8Array,
    { sentAtMs, signal }: { readonly sentAtMs?: number; readonly signal?: AbortSignal } = {},
  ): Promise<WindowWrite> {
    this.#check(id, bytes, sentAtMs);
    // The caller may use its bytes again before they are sent.
    const own = bytes.slice();
    const mark = id === undefined ? undefined : await markOfEntry(this.#options.digest, id, own);
    for (;;) {
      this.#requireOpen();
      signal?.throwIfAborted();
      // From the decision to the beginning of the write nothing is awaited: another call could decide the same.
      const decided = mark && id ? this.#decide(id, mark, sentAtMs ?? keyTimeMs(id)) : "new";
      if (typeof decided !== "string")
        return { position: await this.#confirmed(decided, signal), isDuplicate: true };
      if (this.#isFull(own)) {
        await this.#waitForRoom(signal);
        continue;
      }
      if (decided === "unproven") this.#unproven += 1;
      const write = this.#begin(own, id, mark);
      return { position: await this.#confirmed(write, signal), isDuplicate: false };
    }
  }

  /** Returns what the id stands for already, or that it is new. Throws refusals. */
  #decide(
    id: string,
    mark: KeyMark,
    sentAtMs: number | undefined,
  ): UnconfirmedWrite | LogPosition | "new" | "unproven" {
    const { meter, clockSkewMs, onExpired, durationMs } = this.#options;
    const state = this.#state;
    const decision = decideWrite(state, { id, mark, sentAtMs }, clockSkewMs);
    switch (decision.kind) {
      case "duplicate": {
        meter.add("duplicates_total", 1, LABELS);
        const headroom = 1 - (state.newestMs - decision.atMs) / durationMs;
        meter.set("window_headroom_ratio", headroom, LABELS);
        return decision.position;
      }
      case "pending":
        meter.add("duplicates_total", 1, LABELS);
        return this.#writes.get(id) ?? "new";
      case "mismatch":
        meter.add("mismatches_total", 1, LABELS);
        throw new HapaxError("key_reused", `the id stands for other bytes; id=${id}`);
      case "expired":
        meter.add("expired_total", 1, LABELS);
        if (onExpired === "accept") return "unproven";
        throw new HapaxError(
          "key_expired",
          `the id is older than what the window remembers, and may have been stored; id=${id} ` +
            `sentAtMs=${sentAtMs} forgottenToMs=${state.forgottenToMs}`,
        );
      case "new":
        return decision.isProven ? "new" : "unproven";
    }
  }

  #isFull(bytes: Uint8Array): boolean {
    const { pendingMax, pendingBytesMax } = this.#options;
    if (this.#pending >= pendingMax) return true;
    return this.#pending > 0 && this.#pendingBytes + bytes.length > pendingBytesMax;
  }

  /** The caller has to decide again afterwards. */
  async #waitForRoom(signal: AbortSignal | undefined): Promise<void> {
    if (this.#options.onFull === "refuse")
      throw new HapaxError("too_many", `too many writes are unconfirmed; pending=${this.#pending}`);
    let wake: () => void = () => undefined;
    const freed = new Promise<void>((resolve) => (wake = resolve));
    this.#room.add(wake);
    try {
      await this.#inTime(
        freed,
        signal,
        "too many writes are unconfirmed, and this one was not sent",
      );
    } finally {
      this.#room.delete(wake);
    }
  }

  #begin(bytes: Uint8Array, id?: string, mark?: KeyMark): UnconfirmedWrite {
    const write = new UnconfirmedWrite({ id, bytes }, mark);
    if (id !== undefined && mark !== undefined) {
      this.#state.pending.set(id, { id, mark });
      this.#writes.set(id, write);
    }
    this.#pending += 1;
    this.#pendingBytes += bytes.length;
    this.#batches.add(write);
    return write;
  }

  #confirmed(
    write: UnconfirmedWrite | LogPosition,
    signal: AbortSignal | undefined,
  ): Promise<LogPosition> {
    if (!(write instanceof UnconfirmedWrite)) return Promise.resolve(write);
    const words = "the outcome is not known yet: write again under the same id";
    return this.#inTime(write.outcome, signal, words);
  }

  /** What the promise resolves with, unless the signal aborts or the time is over before. */
  async #inTime<T>(
    promise: Promise<T>,
    signal: AbortSignal | undefined,
    words: string,
  ): Promise<T> {
    const { clock, timeoutMs, meter } = this.#options;
    let cancel: () => void = () => undefined;
    const late = new Promise<never>((_, reject) => {
      cancel = clock.after(timeoutMs, () => {
        meter.add("unknown_total", 1, LABELS);
        const cause = this.#batches.lastError;
        reject(new HapaxError("unreachable", `${words}; timeoutMs=${timeoutMs}`, { cause }));
      });
    });
    try {
      return await unlessAborted(Promise.race([promise, late]), signal);
    } finally {
      cancel();
    }
  }

  #noteStored(writes: readonly UnconfirmedWrite[]): void {
    for (const { entry } of writes) {
      this.#pending -= 1;
      this.#pendingBytes -= entry.bytes.length;
      if (entry.id === undefined) continue;
      this.#state.pending.delete(entry.id);
      this.#writes.delete(entry.id);
      this.#newIds += 1;
      this.#options.meter.add("claims_total", 1, LABELS);
    }
    this.#wake();
    if (this.#newIds >= this.#options.snapshotKeys) this.#saveLater();
    else if (this.#newIds > 0) {
      this.#cancelTimer ??= this.#options.idleClock.after(this.#options.snapshotMs, () =>
        this.#saveLater(),
      );
    }
  }

  #wake(): void {
    for (const wake of this.#room) wake();
  }

  /** A failure is counted; the snapshot before it stays, and the next one is due as usual. */
  #saveLater(): void {
    if (this.#saving !== undefined || this.#ended !== undefined) return;
    this.snapshot().catch(() => undefined);
  }

  snapshot(): Promise<void> {
    this.#requireOpen();
    this.#saving ??= this.#save().finally(() => {
      this.#saving = undefined;
    });
    return this.#saving;
  }

  async #save(): Promise<void> {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    const ids = this.#newIds;
    this.#newIds = 0;
    this.#sequence += 1;
    const name = { epoch: this.epoch, sequence: this.#sequence };
    try {
      await saveSnapshot(this.#given.snapshots, name, this.#state);
      this.#snapshots += 1;
    } catch (error) {
      this.#newIds += ids;
      this.#snapshotFailures += 1;
      this.#options.meter.add("failures_total", 1, LABELS);
      // Not at once: the store may need a while.
      if (this.#ended === undefined)
        this.#cancelTimer ??= this.#options.idleClock.after(this.#options.snapshotMs, () =>
          this.#saveLater(),
        );
      throw error;
    }
  }

  async truncate(beforeSegment: number): Promise<void> {
    this.#requireOpen();
    const { log } = this.#given;
    if (!("truncate" in log && typeof log.truncate === "function"))
      throw new HapaxError("unsupported", "the log has no truncate()");
    const { keys } = this.#state;
    for (let ordinal = keys.first; ordinal < keys.next; ordinal += 1) {
      const { segment } = this.#state.positionOf(ordinal);
      if (segment >= beforeSegment) continue;
      const facts = `segment=${segment} beforeSegment=${beforeSegment}`;
      throw new HapaxError(
        "invalid_request",
        `the window remembers an id in the segment; ${facts}`,
      );
    }
    await log.truncate(beforeSegment);
  }

  async close(): Promise<void> {
    if (this.#ended !== undefined) return;
    const closed = new HapaxError("store_closed", "the window is closed");
    const { signal } = this.#given.writer ?? {};
    // New writes are refused; those that were taken may end.
    this.#ended = closed;
    this.#wake();
    await this.#inTime(this.#batches.idle(), undefined, "the log does not answer").catch(
      () => undefined,
    );
    this.#batches.stop(closed);
    signal?.removeEventListener("abort", this.#onLeaseLost);
    // A snapshot is worth a wait, and no more: without it the next writer reads more of the log.
    await this.#inTime(this.#lastSnapshot(closed), undefined, "the store does not answer").catch(
      () => undefined,
    );
    this.#cancelTimer?.();
  }

  async #lastSnapshot(closed: Error): Promise<void> {
    await this.#saving?.catch(() => undefined);
    if (this.#newIds > 0 && this.#ended === closed) await this.#save();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #end(error: Error): void {
    this.#ended = error;
    this.#options.meter.add("fenced_total", 1, LABELS);
    this.#cancelTimer?.();
    this.#batches.stop(error);
    this.#wake();
  }

  #requireOpen(): void {
    if (this.#ended !== undefined) throw this.#ended;
  }

  #check(id: string | undefined, bytes: Uint8Array, sentAtMs: number | undefined): void {
    this.#requireOpen();
    const check = new Check();
    if (id !== undefined) check.name("id", id);
    if (!(bytes instanceof Uint8Array)) check.problem("bytes is not a Uint8Array");
    if (sentAtMs !== undefined && !Number.isFinite(sentAtMs))
      check.problem(`sentAtMs=${sentAtMs} is not a time`);
    check.end("invalid_request");
  }
}
