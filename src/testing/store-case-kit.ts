/** The parts of the conformance cases of stores: changes in one line, and checks without a runner. */

import { utf8Of } from "../base/bytes.ts";
import { digestContent } from "../streams/core/content-digest.ts";
import type { Change } from "../streams/core/change.ts";
import { imageOfGroups } from "../streams/core/group-image.ts";
import type { GroupBook } from "../streams/core/group-state.ts";
import { KeyWindow, type KeyWindowView } from "../base/key-window.ts";
import type { StoredKey } from "../streams/core/keys.ts";
import type { ProducerMark } from "../streams/core/producer.ts";
import { NEVER_EXPIRES, type StreamState } from "../streams/core/stream.ts";
import type {
  Epoch,
  Offset,
  ProducerId,
  Sequence,
  SessionNonce,
  RunId,
  StreamId,
  StreamName,
  TimeMs,
} from "../streams/core/types.ts";
import { applyChange, type World } from "../streams/core/world.ts";
import { isHapaxError } from "../base/errors.ts";
import type { Page, Store } from "../streams/store.ts";
import { keyClaim } from "./commands.ts";

/** How a conformance case gets its store. Every case gets one of its own. */
export interface OpenStore {
  /** Whether committed data is there again after `close` or `abandon` and another `open`. */
  readonly isDurable: boolean;
  /** Opens the store: empty the first time, later with what it has kept. */
  open(): Promise<Store>;
  /** Leaves an open store as a killed process would. Called only if the store is durable. */
  abandon(store: Store): Promise<void>;
  /** Makes the next commit fail like a broken disk. Undefined if that is not possible. */
  readonly failNextCommit: ((store: Store) => void) | undefined;
  /** Opens the store while it is open, as another process that takes it over. Leave it out if that is not possible. */
  readonly takeOver?: (() => Promise<Store>) | undefined;
}

/** One sentence of the contract of stores, as a function that any test runner can call. */
export interface ConformanceCase {
  /** The sentence of the contract, with its label. */
  readonly name: string;
  /** What a store must offer for this case. */
  readonly needs: "nothing" | "durability" | "a failing commit" | "takeover";
  readonly run: (open: OpenStore) => Promise<void>;
}

export function created(id: number, parts: Partial<StreamState> = {}, atMs = 1): Change {
  return {
    kind: "created",
    atMs: atMs as TimeMs,
    stream: id as StreamId,
    run: parts.run ?? ((2 ** 51 + id) as RunId),
    name: parts.name ?? (`/case/${id}` as StreamName),
    contentType: parts.contentType ?? "text/plain",
    expiry: parts.expiry ?? NEVER_EXPIRES,
    fork: parts.fork,
    keys: parts.keys?.policy,
  };
}

export function forked(id: number, source: number, at: number): Change {
  const fork = {
    source: source as StreamId,
    sourceName: `/case/${source}` as StreamName,
    anchor: at as Offset,
    subOffset: 0,
    at: at as Offset,
    inheritsExpiry: true,
  };
  return created(id, { fork });
}

export function appended(
  id: number,
  data: string | Uint8Array,
  parts: Partial<Extract<Change, { kind: "appended" }>> = {},
): Change {
  const { closes = false, producer } = parts;
  const bytes = typeof data === "string" ? utf8Of(data) : data;
  return {
    kind: "appended",
    atMs: 2 as TimeMs,
    stream: id as StreamId,
    data: bytes,
    closes,
    streamSeq: undefined,
    key: undefined,
    ...parts,
    producer: producer && { ...producer, digest: digestContent(bytes, closes) },
  };
}

/**
 * Makes the mark of an accepted append of a producer. With a session, the epoch belongs to the session. Its digest is
 * that of the append, which `appended` sets.
 */
export function marked(
  id: string,
  epoch: number,
  sequence: number,
  parts: { readonly session?: string; readonly resets?: number } = {},
): ProducerMark {
  const { session, resets = 0 } = parts;
  return {
    id: id as ProducerId,
    epoch: epoch as Epoch,
    sequence: sequence as Sequence,
    session: session as SessionNonce | undefined,
    resets,
    digest: 0,
  };
}

/** Makes the record of a key, which evicts all entries below `evictTo`. */
export function keyed(key: string, ordinal: number, evictTo = 0): StoredKey {
  return { mark: keyClaim(key, `content of ${key}`).mark, ordinal, evictTo };
}

export function reset(id: number, producer: string, resets: number, atMs = 3): Change {
  const [kind, stream] = ["producer_reset", id as StreamId] as const;
  return { kind, atMs: atMs as TimeMs, stream, producer: producer as ProducerId, resets };
}

export function evicted(id: number, evictTo: number, atMs = 3): Change {
  return { kind: "keys_evicted", atMs: atMs as TimeMs, stream: id as StreamId, evictTo };
}

/** Makes a trim of the data before the offset. Only a system stream is trimmed: its name begins without a slash. */
export function trimmed(id: number, to: number, atMs = 3): Change {
  return { kind: "trimmed", atMs: atMs as TimeMs, stream: id as StreamId, to: to as Offset };
}

export const SYSTEM_STREAM = "hapax:case" as StreamName;

export function ended(kind: "deleted" | "removed" | "touched", id: number, atMs = 3): Change {
  return { kind, atMs: atMs as TimeMs, stream: id as StreamId };
}

/** Makes one commit as the engine does: applies the changes to the world, then commits them. */
export async function write(store: Store, ...changes: readonly Change[]): Promise<void> {
  for (const change of changes) applyChange(store.world, change);
  await store.commit(changes);
}

export function read(
  store: Store,
  id: number,
  from: number,
  to: number,
  bytesMax = Number.MAX_SAFE_INTEGER,
): Promise<Page> {
  return store.read(id as StreamId, from as Offset, to as Offset, bytesMax);
}

export function seek(
  store: Store,
  id: number,
  from: number,
  to: number,
  atMs: number,
): Promise<Offset> {
  return store.seek(id as StreamId, from as Offset, to as Offset, atMs as TimeMs);
}

/** Reads everything between two offsets, page by page. */
export async function readAll(
  store: Store,
  id: number,
  from: number,
  to: number,
): Promise<readonly Uint8Array[]> {
  const appends: Uint8Array[] = [];
  for (let position = from; position < to;) {
    const page = await read(store, id, position, to);
    equalCanonical(page.appends.length > 0, true, `there is data at ${position} of stream ${id}`);
    equalCanonical(page.start, position, `a page starts where the one before it ended`);
    for (const append of page.appends) {
      appends.push(append);
      position += append.length;
    }
  }
  return appends;
}

/** Returns bytes that do not repeat at a short distance, so that a test sees a shift or a swap. */
export function pattern(length: number, seed: number): Uint8Array {
  const bytes = new Uint8Array(length);
  let state = seed + 1;
  for (let index = 0; index < length; index += 1) {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    bytes[index] = state >>> 16;
  }
  return bytes;
}

export function equalCanonical(actual: unknown, expected: unknown, what: string): void {
  const [one, other] = [canonical(actual), canonical(expected)];
  if (one !== other) {
    throw new Error(`${what}: expected ${other.slice(0, 300)}, got ${one.slice(0, 300)}`);
  }
}

export function equalBytes(actual: Uint8Array, expected: Uint8Array, what: string): void {
  equalCanonical(actual.length, expected.length, `${what}: length`);
  const at = actual.findIndex((byte, index) => byte !== expected[index]);
  if (at !== -1) throw new Error(`${what}: byte ${at} is ${actual[at]}, not ${expected[at]}`);
}

export async function rejects(
  promise: Promise<unknown>,
  code: Parameters<typeof isHapaxError>[1],
  what: string,
): Promise<void> {
  const error: unknown = await promise.then(
    () => "nothing",
    (reason: unknown) => reason,
  );
  const isExpected = code === undefined ? error instanceof Error : isHapaxError(error, code);
  if (!isExpected) throw new Error(`${what}: expected ${code ?? "an error"}, got ${String(error)}`);
}

/** Returns the world as text, in an order that does not depend on its history. */
export function describeWorld(world: World): string {
  const { streams, byId, nextId, timeMs, signingKeys, incarnation } = world;
  const { byId: subscriptions, generationFloor } = world.subscriptions;
  const ids = [...byId.keys()].toSorted((one, other) => one - other);
  const groups = describeGroups(world.groups);
  return canonical({
    streams,
    ids,
    nextId,
    timeMs,
    signingKeys,
    incarnation,
    subscriptions,
    generationFloor,
    groups,
  });
}

/** Describes groups. Free streams and those of a member are sets, so their order means nothing. */
function describeGroups(book: GroupBook): object {
  const { byId, globs, nextToken } = book;
  const groups = imageOfGroups(book).groups.map((group) => ({
    ...group,
    // Absent and undefined are the same.
    settings: { ...group.settings, pattern: group.settings.pattern },
    openCount: byId.get(group.id)?.openCount,
  }));
  return { nextToken, globs: [...globs.keys()].toSorted(), groups };
}

function entriesOf(window: KeyWindowView): object {
  const { first, next } = window;
  const entries = Array.from({ length: next - first }, (_, index) => [
    [...window.markOf(first + index)],
    window.endOf(first + index),
    window.timeOf(first + index),
  ]);
  return { first, next, entries };
}

function canonical(value: unknown): string {
  if (value instanceof Uint8Array) return `bytes(${value.join()})`;
  if (value instanceof Set) return canonical([...value]);
  if (value instanceof KeyWindow) return canonical(entriesOf(value));
  if (Array.isArray(value)) return `[${value.map((item) => canonical(item)).join()}]`;
  if (typeof value === "object" && value !== null) {
    const entries: [unknown, unknown][] =
      value instanceof Map ? [...value.entries()] : Object.entries(value);
    const lines = entries.map(([key, item]) => `${String(key)}:${canonical(item)}`);
    return `{${lines.toSorted().join()}}`;
  }
  return typeof value === "string" ? JSON.stringify(value) : String(value);
}
