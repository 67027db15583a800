/**
 * Keyed state of a pipeline, one for each stream that it reads. Every change is a record of a changelog, appended in
 * the transaction of the outputs and the offset that it belongs to.
 *
 *   ST1  what an attempt writes is seen by nobody else until the attempt has succeeded; of one that failed nothing stays;
 *   ST2  the changelog up to its tail, read under a lease, is the state at the committed offset of that lease;
 *   ST3  a value is what it was when it was set: what its owner does with it afterwards changes nothing.
 *
 * A record is `{"key", "value"}`, or `{"key"}` for a key that was deleted. Several changes of a key in one transaction
 * are one record. The state of each leased stream is held in memory, as the text of its values, up to `charsMax`. The
 * changelog is never compacted: to be read again it needs as long as it has grown.
 */

import { HapaxError, isHapaxError } from "../errors.ts";
import type { Stream } from "../client/stream.ts";
import type { Transaction } from "./draft.ts";

/** State by key. Keys are text, values JSON. */
export interface PipelineState {
  get<Value = unknown>(key: string): Value | undefined;
  has(key: string): boolean;
  set(key: string, value: unknown): void;
  delete(key: string): void;
}

/** Where state is kept. */
export interface StateSettings {
  /**
   * The path that changelogs are below: that of the stream `/v1/stream/orders` is `<changelog>/v1/stream/orders`. Or
   * what gives the path for a stream; no two streams may share one.
   */
  readonly changelog: string | ((stream: string) => string);
  /** Most characters of keys and values of one stream. Default 268,435,456: half a gibibyte at most. */
  readonly charsMax?: number;
}

const CHARS_MAX = 256 * 1024 * 1024;

/** The text of a value; `undefined` for a key that is deleted. */
type Change = string | undefined;

/** The path of the changelog of a stream. */
export function changelogOf({ changelog }: StateSettings, stream: string): string {
  return typeof changelog === "function" ? changelog(stream) : changelog + stream;
}

export class KeyedState implements PipelineState {
  readonly #charsMax: number;
  /** As committed. */
  readonly #texts = new Map<string, string>();
  /** Of the transaction that is being collected. */
  readonly #page = new Map<string, Change>();
  /** Of the attempt under way. */
  readonly #attempt = new Map<string, Change>();
  #chars = 0;

  constructor(charsMax = CHARS_MAX) {
    this.#charsMax = charsMax;
  }

  get<Value = unknown>(key: string): Value | undefined {
    const text = this.#text(key);
    // Cast: what is in the state is for its user to know. ST3: parsed anew for everyone who asks.
    return text === undefined ? undefined : (JSON.parse(text) as Value);
  }

  has(key: string): boolean {
    return this.#text(key) !== undefined;
  }

  set(key: string, value: unknown): void {
    const text = JSON.stringify(value) as string | undefined;
    if (text === undefined) throw new HapaxError("invalid_request", "state must be a JSON value");
    if (this.#chars + key.length + text.length > this.#charsMax) {
      throw new HapaxError("invalid_settings", `the state is above charsMax=${this.#charsMax}`);
    }
    this.#attempt.set(key, text);
  }

  delete(key: string): void {
    this.#attempt.set(key, undefined);
  }

  /** The attempt has succeeded: what follows in this transaction sees what it wrote. */
  keep(): void {
    for (const [key, change] of this.#attempt) this.#page.set(key, change);
    this.#attempt.clear();
  }

  /** ST1 */
  drop(): void {
    this.#attempt.clear();
  }

  /** The transaction is not stored, or will be collected anew. */
  dropAll(): void {
    this.#attempt.clear();
    this.#page.clear();
  }

  /** What the transaction has to store. */
  collect(tx: Transaction, changelog: string): void {
    for (const [key, text] of this.#page) {
      if (text === undefined && !this.#texts.has(key)) continue;
      tx.append(changelog, text === undefined ? { key } : { key, value: JSON.parse(text) });
    }
  }

  /** The transaction is stored. */
  commit(): void {
    for (const [key, change] of this.#page) this.#put(key, change);
    this.#page.clear();
  }

  /** ST2. Reads what there is; creates the changelog if there is none. */
  async restore(changelog: Stream, signal: AbortSignal): Promise<void> {
    try {
      for await (const page of changelog.read({ signal }).pages()) {
        for (const record of page.records) this.#apply(record);
      }
    } catch (error) {
      if (!isHapaxError(error, "stream_not_found")) throw error;
      await changelog.create({ contentType: "application/json", signal });
    }
  }

  #apply(record: unknown): void {
    const members = new Map<string, unknown>(
      typeof record === "object" && record !== null ? Object.entries(record) : [],
    );
    const key = members.get("key");
    if (typeof key !== "string") {
      throw new HapaxError("invalid_settings", "the changelog has records that are no state");
    }
    const value = members.get("value");
    this.#put(key, value === undefined ? undefined : JSON.stringify(value));
  }

  #put(key: string, change: Change): void {
    const old = this.#texts.get(key);
    if (old !== undefined) this.#chars -= key.length + old.length;
    if (change === undefined) {
      this.#texts.delete(key);
    } else {
      this.#chars += key.length + change.length;
      this.#texts.set(key, change);
    }
  }

  #text(key: string): string | undefined {
    if (this.#attempt.has(key)) return this.#attempt.get(key);
    if (this.#page.has(key)) return this.#page.get(key);
    return this.#texts.get(key);
  }
}
