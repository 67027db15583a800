/**
 * Keyed state of a pipeline, one for each stream that it reads. Every change is a record of a changelog, appended in
 * the transaction of the outputs and the offset that it belongs to.
 *
 *   - no other attempt sees the writes of an attempt until it has succeeded; nothing stays of a failed one;
 *   - the changelog up to its tail, read under a lease, is the state at the committed offset of that lease;
 *   - a value is encoded when it is set: later changes by its owner have no effect.
 *
 *   - a changelog has one owner: the group and the stream that its first record names. State is that of one life of
 *     the stream: records before the one that names the life do not count.
 *
 *   - the changelog does not grow with the changes: transactions say its oldest values again, and what is before them is
 *     trimmed (state-log.ts). What is left is the state.
 *
 * A record is `{"group", "stream", "life"}` where a life begins; then `{"key", "value"}`, or `{"key"}` for a key that was
 * deleted; and `{"continues": {"group", "stream", "life"}}` names the owner again, because its first record will be trimmed.
 * Several changes of a key in one transaction are one record. The state of each leased stream is held in memory, as the text
 * of its values, up to `charsMax`.
 */

import { assert } from "../../base/assert.ts";
import { exactJson } from "../../base/exact-json.ts";
import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { JsonText } from "../records.ts";
import type { Stream } from "../stream.ts";
import { mapOf } from "./calls.ts";
import type { Transaction } from "./draft.ts";
import { type LogPart, StateLog } from "./state-log.ts";

/** State by key. Keys are text, values JSON. */
export interface PipelineState {
  get<Value = unknown>(key: string): Value | undefined;
  has(key: string): boolean;
  set(key: string, value: unknown): void;
  delete(key: string): void;
}

/** Options of a pipeline's state. */
export interface StateOptions {
  /**
   * The path above all changelogs: that of the stream `/v1/stream/orders` is `<changelog>/v1/stream/orders`. Or a function
   * that returns the path for a stream. Each stream of each group needs a changelog of its own: the second user of a
   * changelog is refused.
   */
  readonly changelog: string | ((stream: string) => string);
  /**
   * The most characters of keys and values of one stream, with those of the current transaction. They are kept in
   * memory. Default 268,435,456, which is half a gibibyte at most. A change that goes beyond it throws
   * `invalid_options`, which ends the pipeline.
   */
  readonly charsMax?: number;
}

const CHARS_MAX = 256 * 1024 * 1024;
/** How often a changelog is read anew because its beginning was trimmed meanwhile. */
const READS_MAX = 10;

/** The owner of a changelog. */
export interface StateOwner {
  readonly group: string;
  readonly stream: string;
  readonly life: string;
}

/** A record that names the owner. */
interface NamedLife {
  readonly life: string;
  /** What was read of this life counts. Otherwise the life begins, with an empty state. */
  readonly isContinued: boolean;
}

/** Returns the life that a record names, if it names one. Throws `invalid_options` if it names another owner. */
function lifeIn(record: unknown, owner: StateOwner, url: string): NamedLife | undefined {
  const members = mapOf(record);
  const continued = members.get("continues");
  const named = continued === undefined ? members : mapOf(continued);
  const [group, stream, life] = ["group", "stream", "life"].map((name) => named.get(name));
  if (typeof life !== "string" || members.has("key")) return undefined;
  if (group === owner.group && stream === owner.stream) {
    return { life, isContinued: continued !== undefined };
  }
  throw foreign(url, `is that of group=${String(group)} stream=${String(stream)}`);
}

function foreign(url: string, words: string): HapaxError {
  const advice = "give each group and each stream a changelog of its own";
  return new HapaxError("invalid_options", `the changelog ${url} ${words}: ${advice}`);
}

/** The text of a value; `undefined` for a key that is deleted. */
type Change = string | undefined;

/** A committed value, and the part of the changelog that has it. */
interface Kept {
  readonly text: string;
  readonly part: LogPart;
}

/** Returns the path of the changelog of a stream. */
export function changelogOf({ changelog }: StateOptions, stream: string): string {
  return typeof changelog === "function" ? changelog(stream) : changelog + stream;
}

export class KeyedState implements PipelineState {
  readonly #charsMax: number;
  /** The committed values. The one that was stored first is the first. */
  readonly #kept = new Map<string, Kept>();
  readonly #log = new StateLog();
  #isTrimming = false;
  #owner: { readonly owner: StateOwner; readonly part: LogPart } | undefined;
  /** Keys whose values the transaction that is being collected says again, and whether it names the owner again. */
  #repeated: readonly string[] = [];
  #repeatsOwner = false;
  /** The changes of the transaction that is being collected. */
  readonly #page = new Map<string, Change>();
  /** The changes of the current attempt. */
  readonly #attempt = new Map<string, Change>();
  /** The characters of keys and values: committed, with the transaction, and with the attempt too. */
  #chars = { committed: 0, page: 0, attempt: 0 };

  constructor(charsMax = CHARS_MAX) {
    this.#charsMax = charsMax;
  }

  get<Value = unknown>(key: string): Value | undefined {
    const text = this.#text(key);
    // Cast: the user knows the types in its state. Every call parses anew.
    return text === undefined ? undefined : (JSON.parse(text) as Value);
  }

  has(key: string): boolean {
    return this.#text(key) !== undefined;
  }

  set(key: string, value: unknown): void {
    const json = exactJson(value, `the state of ${JSON.stringify(key)}`);
    if (!("text" in json)) {
      const words = `${json.path} ${json.problem}: state must be a value that JSON keeps`;
      throw new HapaxError("invalid_request", words);
    }
    const { text } = json;
    const chars = this.#chars.attempt + charsOf(key, text) - charsOf(key, this.#text(key));
    this.#requireRoom(chars);
    this.#chars.attempt = chars;
    this.#attempt.set(key, text);
  }

  delete(key: string): void {
    this.#chars.attempt -= charsOf(key, this.#text(key));
    this.#attempt.set(key, undefined);
  }

  /** Keeps the changes of a successful attempt: later attempts of this transaction see them. */
  keep(): void {
    for (const [key, change] of this.#attempt) this.#page.set(key, change);
    this.#attempt.clear();
    this.#chars.page = this.#chars.attempt;
  }

  drop(): void {
    this.#attempt.clear();
    this.#chars.attempt = this.#chars.page;
  }

  /** Drops the changes of a transaction that is not stored, or will be collected anew. */
  dropAll(): void {
    this.#page.clear();
    this.#repeated = [];
    this.#repeatsOwner = false;
    this.#chars.page = this.#chars.committed;
    this.drop();
  }

  /** Appends the changes to the transaction, and with `mayRepeat` the oldest values of a changelog that has grown. */
  collect(tx: Transaction, changelog: string, mayRepeat = false): void {
    let chars = 0;
    for (const [key, text] of this.#page) {
      if (text === undefined && !this.#kept.has(key)) continue;
      const record = recordOf(key, text);
      chars += record.length;
      tx.append(changelog, new JsonText(record));
    }
    const room = mayRepeat ? this.#log.repeatable(chars, this.#neededChars) : 0;
    this.#repeated = this.#chooseRepeated(room);
    for (const key of this.#repeated) {
      tx.append(changelog, new JsonText(recordOf(key, this.#kept.get(key)?.text)));
    }
    this.#repeatsOwner = room > 0 && this.#owner?.part === this.#log.oldest;
    if (this.#repeatsOwner) tx.append(changelog, { continues: this.#owner?.owner });
  }

  /** Commits the changes of a stored transaction. `tail`: where the changelog ends now, if the server has said it. */
  commit(tail?: string): void {
    assert(this.#attempt.size === 0, "an attempt is open while its transaction is committed");
    const hasRecords = this.#page.size > 0 || this.#repeatsOwner || this.#repeated.length > 0;
    if (hasRecords) this.#log.begin(this.#neededChars);
    for (const key of this.#repeated) this.#put(key, this.#kept.get(key)?.text);
    for (const [key, change] of this.#page) this.#put(key, change);
    if (this.#repeatsOwner && this.#owner !== undefined) this.#nameOwner(this.#owner.owner);
    this.#page.clear();
    this.#repeated = [];
    this.#repeatsOwner = false;
    this.#chars.committed = this.#chars.page;
    if (hasRecords) this.#log.end(tail);
  }

  /**
   * Trims what the changelog does not need any more, if that is worth a call. Never rejects: without the right to trim, or while
   * a group needs the records, the changelog grows as it would without it.
   */
  async trim(call: (before: string) => Promise<unknown>): Promise<void> {
    const before = this.#isTrimming ? undefined : this.#log.takeTrim(this.#neededChars);
    if (before === undefined) return;
    this.#isTrimming = true;
    try {
      await call(before);
      this.#log.trimmed();
    } catch {
      this.#log.refused();
    } finally {
      this.#isTrimming = false;
    }
  }

  /**
   * Reads the changelog, or creates it. `begin` appends the owner if the tail is still the given one.
   */
  async restore(
    changelog: Stream,
    owner: StateOwner,
    signal: AbortSignal,
    begin: (tail: string) => Promise<string | undefined>,
  ): Promise<void> {
    for (;;) {
      const { life, tail } = await this.#readWhole(changelog, owner, signal);
      if (life === owner.life) return;
      // What the life before has left is in parts that nothing needs, and goes.
      this.#forget();
      this.#log.end(tail);
      try {
        const behind = await begin(tail);
        this.#log.begin(0);
        this.#nameOwner(owner);
        this.#log.end(behind);
        return;
      } catch (error) {
        if (!isHapaxError(error, "tail_moved")) throw error;
      }
    }
  }

  /** Reads again if what it reads is trimmed meanwhile, by an overtaken member that has stored before what it trims. */
  async #readWhole(
    changelog: Stream,
    owner: StateOwner,
    signal: AbortSignal,
  ): Promise<{ readonly life: string | undefined; readonly tail: string }> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.#read(changelog, owner, signal);
      } catch (error) {
        if (!isHapaxError(error, "offset_trimmed") || tries === READS_MAX) throw error;
      }
    }
  }

  /** Reads the state of the life that the changelog names last. Returns the life and the tail. */
  async #read(
    changelog: Stream,
    owner: StateOwner,
    signal: AbortSignal,
  ): Promise<{ readonly life: string | undefined; readonly tail: string }> {
    this.#forget();
    this.#log.clear();
    let life: string | undefined;
    let hasRecords = false;
    let tail = "";
    try {
      for await (const page of changelog.read({ signal }).pages()) {
        if (page.records.length > 0) this.#log.begin(this.#neededChars);
        for (const record of page.records) {
          const named = lifeIn(record, owner, changelog.url);
          if (named === undefined) this.#apply(record);
          else {
            // The values before a life that goes on are of that life, if nothing else was named before.
            if (!named.isContinued || (life ?? named.life) !== named.life) this.#forget();
            ({ life } = named);
            this.#nameOwner({ ...owner, life });
          }
          hasRecords = true;
        }
        tail = page.nextOffset;
        this.#log.end(tail);
      }
    } catch (error) {
      if (!isHapaxError(error, "stream_not_found")) throw error;
      ({ offset: tail } = await changelog.create({ contentType: "application/json", signal }));
      this.#log.end(tail);
    }
    if (life === undefined && hasRecords) throw foreign(changelog.url, "names no owner");
    if (life === owner.life) this.#requireRoom(this.#chars.committed);
    return { life, tail };
  }

  /** Which values are said again: the oldest. */
  #chooseRepeated(charsMax: number): readonly string[] {
    const chosen: string[] = [];
    let chars = charsMax;
    for (const [key, { text, part }] of this.#kept) {
      if (chars <= 0 || part === this.#log.newest) break;
      if (this.#page.has(key)) continue;
      chosen.push(key);
      chars -= recordChars(key, text);
    }
    return chosen;
  }

  /** The characters of a changelog that has each value once. */
  get #neededChars(): number {
    return this.#chars.committed + this.#kept.size * RECORD_CHARS;
  }

  /** The newest part of the changelog names the owner. */
  #nameOwner(owner: StateOwner): void {
    if (this.#owner !== undefined) this.#owner.part.needed -= 1;
    const part = this.#log.newest;
    part.needed += 1;
    this.#owner = { owner, part };
    this.#log.add(RECORD_CHARS + owner.group.length + owner.stream.length + owner.life.length);
  }

  #forget(): void {
    for (const { part } of this.#kept.values()) part.needed -= 1;
    if (this.#owner !== undefined) this.#owner.part.needed -= 1;
    this.#owner = undefined;
    this.#kept.clear();
    this.#chars = { committed: 0, page: 0, attempt: 0 };
  }

  #apply(record: unknown): void {
    const members = mapOf(record);
    const key = members.get("key");
    if (typeof key !== "string") {
      throw new HapaxError("invalid_options", "the changelog has records that are no state");
    }
    const value = members.get("value");
    const text = value === undefined ? undefined : JSON.stringify(value);
    const before = this.#kept.get(key)?.text;
    const chars = this.#chars.committed + charsOf(key, text) - charsOf(key, before);
    this.#chars = { committed: chars, page: chars, attempt: chars };
    this.#put(key, text);
  }

  /** The newest part of the changelog has this change. */
  #put(key: string, change: Change): void {
    const before = this.#kept.get(key);
    if (before !== undefined) {
      before.part.needed -= 1;
      this.#kept.delete(key);
    }
    this.#log.add(recordChars(key, change));
    if (change === undefined) return;
    const part = this.#log.newest;
    part.needed += 1;
    this.#kept.set(key, { text: change, part });
  }

  #requireRoom(chars: number): void {
    if (chars <= this.#charsMax) return;
    const words = `the state of a stream would have ${String(chars)} characters`;
    const advice = "raise it, delete keys, or use more streams";
    throw new HapaxError(
      "invalid_options",
      `${words}, more than charsMax=${String(this.#charsMax)}: ${advice}`,
    );
  }

  #text(key: string): string | undefined {
    if (this.#attempt.has(key)) return this.#attempt.get(key);
    if (this.#page.has(key)) return this.#page.get(key);
    return this.#kept.get(key)?.text;
  }
}

function charsOf(key: string, text: string | undefined): number {
  return text === undefined ? 0 : key.length + text.length;
}

/** A record without its key and its value. */
const RECORD_CHARS = 18;

function recordChars(key: string, text: Change): number {
  return RECORD_CHARS + key.length + (text ?? "").length;
}

function recordOf(key: string, text: Change): string {
  const name = `"key":${JSON.stringify(key)}`;
  return text === undefined ? `{${name}}` : `{${name},"value":${text}}`;
}
