/**
 * The tables of a shard in memory, on a server that misbehaves as real ones do. One seed gives one history.
 *
 *   - an answer gets lost: the statement was executed, or not, or is executed later, perhaps after a takeover;
 *   - a statement is visible and not replicated: the server was restarted while it waited for its standby, or the wait was given
 *     up. A later statement that is answered without doubt replicates everything before it;
 *   - a failover keeps what was replicated, and loses the rest;
 *   - a stale standby is promoted: what was acknowledged is gone (`goBack`).
 */

import { createHash } from "node:crypto";
import type { Clock } from "../../src/base/clock.ts";
import { StatementRefused } from "../../src/streams/stores/postgres/session.ts";
import {
  type Done,
  type FencedWrite,
  type FrameRow,
  type ImageRow,
  type Owner,
  PART_BYTES,
  type ReleaseMark,
  type SegmentRow,
  type ShardState,
  type ShardTables,
  type Sight,
} from "../../src/streams/stores/postgres/tables.ts";
import type { SeededRandom } from "../../src/testing/seeded-random.ts";

interface State {
  epoch: number;
  owner: Owner | undefined;
  beats: Map<string, number>;
  released: ReleaseMark | undefined;
  segments: Map<number, SegmentRow & { readonly epoch: number }>;
  frames: Map<number, Map<number, FrameRow>>;
  images: Map<number, ImageRow>;
  parts: Map<string, Uint8Array>;
}

/** Changes the state. Returns whether it has done what was asked. */
type Operation = (state: State) => boolean;

function emptyState(): State {
  return {
    epoch: 0,
    owner: undefined,
    beats: new Map(),
    released: undefined,
    segments: new Map(),
    frames: new Map(),
    images: new Map(),
    parts: new Map(),
  };
}

/** How likely each harm is, of one statement. */
export interface Harms {
  readonly lostRequest: number;
  readonly lostAnswer: number;
  readonly late: number;
  readonly doubt: number;
  readonly refused: number;
  readonly failover: number;
}

export const NO_HARM: Harms = {
  lostRequest: 0,
  lostAnswer: 0,
  late: 0,
  doubt: 0,
  refused: 0,
  failover: 0,
};

export class SimulatedServer {
  harms: Harms;
  readonly trace: string[] = [];
  readonly #random: SeededRandom;
  readonly #clock: Clock;
  #operations: Operation[] = [];
  #replicated = 0;
  #state = emptyState();
  #late: Operation[] = [];
  failovers = 0;

  constructor(random: SeededRandom, clock: Clock, harms: Harms) {
    this.#random = random;
    this.#clock = clock;
    this.harms = harms;
  }

  /** What was executed so far, and how much of it is replicated. */
  get counts(): { readonly executed: number; readonly replicated: number } {
    return { executed: this.#operations.length, replicated: this.#replicated };
  }

  /** Loses the last operations, replicated or not. */
  goBack(count: number): void {
    this.#keep(Math.max(0, this.#operations.length - count));
  }

  /** Executes what is late. */
  executeLate(): void {
    for (const operation of this.#late.splice(0)) this.#execute(operation);
  }

  async read<T>(name: string, look: (state: State) => T): Promise<T> {
    await this.#travel(name);
    if (this.#happens(this.harms.lostRequest)) throw lost();
    return look(this.#state);
  }

  async write(name: string, operation: Operation): Promise<Done> {
    await this.#travel(name);
    const { lostRequest, late, refused, lostAnswer, doubt } = this.harms;
    if (this.#happens(lostRequest)) throw lost();
    if (this.#happens(refused)) throw new StatementRefused("40P01", "deadlock");
    if (this.#happens(late)) {
      this.#late.push(operation);
      throw lost();
    }
    const isDone = this.#execute(operation);
    if (this.#happens(lostAnswer)) {
      if (this.#happens(0.5)) this.#replicated = this.#operations.length;
      throw lost();
    }
    if (this.#happens(doubt)) return { isDone, isSure: false };
    // The wait for the standby: WAL is one sequence, so everything before is replicated too.
    this.#replicated = this.#operations.length;
    await this.#travel("answer");
    return { isDone, isSure: true };
  }

  async #travel(name: string): Promise<void> {
    this.trace.push(name);
    await new Promise<void>((resolve) => {
      this.#clock.after(1 + Math.floor(this.#random.unit() * 5), resolve);
    });
    if (this.#late.length > 0 && this.#happens(0.3)) {
      const operation = this.#late.shift();
      if (operation !== undefined) this.#execute(operation);
    }
    if (this.#happens(this.harms.failover)) {
      this.failovers += 1;
      this.#keep(this.#replicated);
    }
  }

  #execute(operation: Operation): boolean {
    this.#operations.push(operation);
    return operation(this.#state);
  }

  #keep(count: number): void {
    this.#operations = this.#operations.slice(0, count);
    this.#replicated = Math.min(this.#replicated, count);
    this.#state = emptyState();
    for (const operation of this.#operations) operation(this.#state);
  }

  #happens(share: number): boolean {
    return share > 0 && this.#random.unit() < share;
  }
}

function lost(): Error {
  return new Error("connection terminated unexpectedly");
}

/** The tables as one process sees them. A killed process is answered nothing more. */
export class SimulatedLog implements ShardTables {
  isKilled = false;
  readonly #server: SimulatedServer;
  readonly #timeMs: () => number;

  constructor(server: SimulatedServer, timeMs: () => number) {
    this.#server = server;
    this.#timeMs = timeMs;
  }

  state(): Promise<ShardState> {
    return this.#read("state", ({ epoch, owner, beats }) => {
      return { epoch, owner, beat: beats.get(owner?.life ?? "") };
    });
  }

  async take(epoch: number, owner: Owner): Promise<Done & { readonly timeMs: number }> {
    const done = await this.#write("take", (state) => {
      if (state.epoch !== epoch) return false;
      state.epoch = epoch + 1;
      state.owner = owner;
      return true;
    });
    return { ...done, timeMs: this.#timeMs() };
  }

  release(epoch: number, mark: ReleaseMark | undefined): Promise<Done> {
    return this.#write("release", (state) => {
      if (state.epoch !== epoch) return false;
      state.owner = undefined;
      state.released = mark;
      return true;
    });
  }

  async beat({ life }: Owner): Promise<number> {
    await this.#write("beat", ({ beats }) => {
      beats.set(life, (beats.get(life) ?? 0) + 1);
      return true;
    });
    return this.#read("beat", ({ epoch }) => epoch);
  }

  write(epoch: number, write: FencedWrite): Promise<Done> {
    return this.#write(write.kind, (state) => {
      if (state.epoch !== epoch) return false;
      return applyWrite(state, epoch, write);
    });
  }

  confirm(epoch: number, write: FencedWrite): Promise<Done> {
    return this.#write("confirm", (state) => state.epoch === epoch && isThere(state, epoch, write));
  }

  look(write: FencedWrite, epoch: number): Promise<Sight> {
    return this.#read("look", (state) => {
      const there = isThere(state, epoch, write);
      const place =
        write.kind === "frame" ? frameAt(state, write.segment, write.position) : undefined;
      return {
        epoch: state.epoch,
        isThere: there,
        isTaken: place !== undefined && !there,
        hasBefore: write.kind !== "frame" || hasBefore(state, write),
      };
    });
  }

  frames(segment: number, from: number): Promise<readonly FrameRow[]> {
    return this.#read("frames", (state) =>
      rowsOf(state, segment).filter(({ position }) => position >= from),
    );
  }

  read(segment: number, position: number, length: number) {
    return this.#read("read", (state) => {
      const end = position + length;
      return rowsOf(state, segment)
        .filter((row) => row.position < end && row.position + row.bytes.length > position)
        .map((row) => {
          const start = Math.max(row.position, position);
          return {
            position: start,
            bytes: row.bytes.subarray(start - row.position, end - row.position),
          };
        });
    });
  }

  endOf(segment: number): Promise<number> {
    return this.#read("end", (state) => {
      const last = rowsOf(state, segment).at(-1);
      return last === undefined ? 0 : last.position + last.bytes.length;
    });
  }

  segments(): Promise<readonly SegmentRow[]> {
    return this.#read("segments", ({ segments }) => {
      return [...segments.values()].toSorted((one, other) => one.number - other.number);
    });
  }

  images(): Promise<readonly ImageRow[]> {
    return this.#read("images", ({ images }) => {
      return [...images.values()].toSorted((one, other) => other.lsn - one.lsn);
    });
  }

  imagePart({ lsn, epoch }: ImageRow, part: number): Promise<Uint8Array | undefined> {
    return this.#read("part", ({ parts }) => parts.get(`${lsn} ${epoch} ${part}`));
  }

  released(): Promise<ReleaseMark | undefined> {
    return this.#read("released", ({ released }) => released);
  }

  async sweep(epoch: number): Promise<void> {
    await this.#write("sweep", (state) => {
      if (state.epoch !== epoch) return false;
      for (const number of state.frames.keys())
        if (!state.segments.has(number)) state.frames.delete(number);
      return true;
    });
  }

  async #read<T>(name: string, look: (state: State) => T): Promise<T> {
    if (this.isKilled) return new Promise(() => undefined);
    const value = await this.#server.read(name, look);
    return this.isKilled ? new Promise(() => undefined) : value;
  }

  async #write(name: string, operation: Operation): Promise<Done> {
    if (this.isKilled) return new Promise(() => undefined);
    const done = await this.#server.write(name, operation);
    return this.isKilled ? new Promise(() => undefined) : done;
  }
}

function rowsOf(state: State, segment: number): readonly FrameRow[] {
  const rows = [...(state.frames.get(segment)?.values() ?? [])];
  return rows.toSorted((one, other) => one.position - other.position);
}

function frameAt(state: State, segment: number, position: number): FrameRow | undefined {
  return state.frames.get(segment)?.get(position);
}

type FrameOnly = Extract<FencedWrite, { kind: "frame" }>;

function hasBefore(state: State, { before }: FrameOnly): boolean {
  if (before === undefined) return true;
  const found = frameAt(state, before.segment, before.position);
  return found?.lsn === before.lsn && found.epoch === before.epoch;
}

function applyWrite(state: State, epoch: number, write: FencedWrite): boolean {
  switch (write.kind) {
    case "frame": {
      if (!state.segments.has(write.segment)) throw new StatementRefused("42P01", "no such table");
      if (!hasBefore(state, write)) return false;
      if (frameAt(state, write.segment, write.position) !== undefined) return false;
      const rows = state.frames.get(write.segment) ?? new Map<number, FrameRow>();
      state.frames.set(write.segment, rows);
      for (const [at, part] of write.parts.entries()) {
        const position = write.position + at * PART_BYTES;
        rows.set(position, { position, lsn: write.lsn, epoch, bytes: new Uint8Array(part) });
      }
      return true;
    }
    case "segment":
      if (state.segments.has(write.segment.number)) return false;
      state.segments.set(write.segment.number, { ...write.segment, epoch });
      return true;
    case "retired":
      return state.segments.delete(write.number);
    case "image_part": {
      const name = `${write.lsn} ${epoch} ${write.part}`;
      if (state.parts.has(name)) return false;
      state.parts.set(name, new Uint8Array(write.bytes));
      return true;
    }
    case "image":
      if (state.images.has(write.lsn)) return false;
      state.images.set(write.lsn, { lsn: write.lsn, epoch, bytes: write.bytes });
      return true;
    case "image_dropped":
      return state.images.delete(write.lsn);
  }
}

function digestOf(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

function isThere(state: State, epoch: number, write: FencedWrite): boolean {
  switch (write.kind) {
    case "frame":
      return write.parts.every((part, at) => {
        const found = frameAt(state, write.segment, write.position + at * PART_BYTES);
        return found?.epoch === epoch && digestOf(found.bytes) === digestOf(part);
      });
    case "segment":
      return state.segments.get(write.segment.number)?.salt === write.segment.salt;
    case "retired":
      return !state.segments.has(write.number);
    case "image_part":
      return state.parts.has(`${write.lsn} ${epoch} ${write.part}`);
    case "image":
      return state.images.get(write.lsn)?.epoch === epoch;
    case "image_dropped":
      return !state.images.has(write.lsn);
  }
}
