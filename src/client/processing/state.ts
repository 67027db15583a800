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
 * A record is `{"group", "stream", "life"}` where a life begins; then `{"key", "value"}`, or `{"key"}` for a key that was
 * deleted. Several changes of a key in one transaction are one record. The state of each leased stream is held in memory,
 * as the text of its values, up to `charsMax`. The changelog is never compacted: the time to read it grows with it.
 */

import { assert } from "../../base/assert.ts";
import { exactJson } from "../../base/exact-json.ts";
import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { JsonText } from "../records.ts";
import type { Stream } from "../stream.ts";
import { mapOf } from "./calls.ts";
import type { Transaction } from "./draft.ts";

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
   * that returns the path for a stream. No two streams and no two groups may share a changelog: the second is refused.
   */
  readonly changelog: string | ((stream: string) => string);
  /**
   * The most characters of keys and values of one stream, with the current transaction. Default 268,435,456: half a
   * gibibyte at most. A change that goes beyond it throws `invalid_options`, which ends the pipeline.
   */
  readonly charsMax?: number;
}

const CHARS_MAX = 256 * 1024 * 1024;

/** The owner of a changelog. */
export interface StateOwner {
  readonly group: string;
  readonly stream: string;
  readonly life: string;
}

/** Returns the life that a record begins, if it begins one. Throws `invalid_options` if it names another owner. */
function lifeIn(record: unknown, owner: StateOwner, url: string): string | undefined {
  const [group, stream, life] = ["group", "stream", "life"].map((name) => mapOf(record).get(name));
  if (typeof life !== "string" || mapOf(record).has("key")) return undefined;
  if (group === owner.group && stream === owner.stream) return life;
  throw foreign(url, `is that of group=${String(group)} stream=${String(stream)}`);
}

function foreign(url: string, words: string): HapaxError {
  const advice = "give each group and each stream a changelog of its own";
  return new HapaxError("invalid_options", `the changelog ${url} ${words}: ${advice}`);
}

/** The text of a value; `undefined` for a key that is deleted. */
type Change = string | undefined;

/** Returns the path of the changelog of a stream. */
export function changelogOf({ changelog }: StateOptions, stream: string): string {
  return typeof changelog === "function" ? changelog(stream) : changelog + stream;
}

export class KeyedState implements PipelineState {
  readonly #charsMax: number;
  /** The committed values. */
  readonly #texts = new Map<string, string>();
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
    this.#chars.page = this.#chars.committed;
    this.drop();
  }

  /** Appends the changes to the transaction. */
  collect(tx: Transaction, changelog: string): void {
    for (const [key, text] of this.#page) {
      if (text === undefined && !this.#texts.has(key)) continue;
      const name = `"key":${JSON.stringify(key)}`;
      tx.append(
        changelog,
        new JsonText(text === undefined ? `{${name}}` : `{${name},"value":${text}}`),
      );
    }
  }

  /** Commits the changes of a stored transaction. */
  commit(): void {
    assert(this.#attempt.size === 0, "an attempt is open while its transaction is committed");
    for (const [key, change] of this.#page) this.#put(key, change);
    this.#page.clear();
    this.#chars.committed = this.#chars.page;
  }

  /**
   * Reads the changelog, or creates it. `begin` appends the owner if the tail is still the given one.
   */
  async restore(
    changelog: Stream,
    owner: StateOwner,
    signal: AbortSignal,
    begin: (tail: string) => Promise<void>,
  ): Promise<void> {
    for (;;) {
      const { life, tail } = await this.#read(changelog, owner, signal);
      if (life === owner.life) return;
      this.#clear();
      try {
        await begin(tail);
        return;
      } catch (error) {
        if (!isHapaxError(error, "tail_moved")) throw error;
      }
    }
  }

  /** Reads the state of the life that the changelog names last. Returns the life and the tail. */
  async #read(
    changelog: Stream,
    owner: StateOwner,
    signal: AbortSignal,
  ): Promise<{ readonly life: string | undefined; readonly tail: string }> {
    this.#clear();
    let life: string | undefined;
    let tail = "";
    try {
      for await (const page of changelog.read({ signal }).pages()) {
        for (const record of page.records) {
          const named = lifeIn(record, owner, changelog.url);
          if (named !== undefined) this.#clear();
          else if (life === undefined) throw foreign(changelog.url, "does not begin with an owner");
          else this.#apply(record);
          life = named ?? life;
        }
        tail = page.nextOffset;
      }
    } catch (error) {
      if (!isHapaxError(error, "stream_not_found")) throw error;
      ({ offset: tail } = await changelog.create({ contentType: "application/json", signal }));
    }
    if (life === owner.life) this.#requireRoom(this.#chars.committed);
    return { life, tail };
  }

  #clear(): void {
    this.#texts.clear();
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
    const chars = this.#chars.committed + charsOf(key, text) - charsOf(key, this.#texts.get(key));
    this.#chars = { committed: chars, page: chars, attempt: chars };
    this.#put(key, text);
  }

  #put(key: string, change: Change): void {
    if (change === undefined) this.#texts.delete(key);
    else this.#texts.set(key, change);
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
    return this.#texts.get(key);
  }
}

function charsOf(key: string, text: string | undefined): number {
  return text === undefined ? 0 : key.length + text.length;
}
