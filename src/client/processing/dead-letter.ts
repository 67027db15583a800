/**
 * Records that a pipeline has given up, and their handling. They are in a JSON stream: each dead letter is one
 * record, and so is the note that it was handled.
 *
 *   - a letter is held until a later record of the stream says that it was handled;
 *   - a letter is replayed or discarded once: the note, and the record that is appended again, are one transaction,
 *     which is refused if any record was appended to the stream since it was read;
 *   - records that are not dead letters are left alone;
 *   - a record is kept and replayed as it was stored, with every digit. One that is too large for a letter stays in its
 *     stream, at the place that the letter names;
 *   - letters are those of the present stream, and a letter holds only for the life of the stream that it
 *     names: a record of a stream that was created anew at the path is never replayed in place of the old one.
 *
 *   | dead letter  | `{id, stream, offset, record, base64 or recordBytes, reason: {fingerprint, message}, attempts, at}` |
 *   | its handling | `{id, handled: "replayed" or "discarded", to?, at}`                            |
 */

import {
  type DeadLetterFilter,
  type DeadLetterGroup,
  type DeadLetterReason,
  groupLetters,
  reasonOf,
} from "../../base/dead-letter.ts";
import { decodeBase64, encodeBase64 } from "../../base/base64.ts";
import { HapaxError, isHapaxError } from "../../base/errors.ts";
import type { Clock } from "../../base/clock.ts";
import { utf8Of, decodeText as textOfBytes } from "../../base/bytes.ts";
import { codecOf, JsonText } from "../records.ts";
import { memberText } from "../../protocol/json.ts";
import { formatRfc3339 } from "../../protocol/values.ts";
import { mapOf } from "./calls.ts";
import type { Connection } from "./connection.ts";
import type { StreamTarget } from "./paths.ts";
import { fromOffset, Places } from "./places.ts";
import { readStored } from "./stored.ts";

/** A record that failed in all attempts of a pipeline or a worker. */
export interface DeadLetter {
  /** Names the record: `<group>/<stream>/<life>/<offset>`. */
  readonly id: string;
  /** The stream of the record. */
  readonly stream: string;
  /** Where the record begins in its stream. */
  readonly offset: string;
  /**
   * A JSON value, a text, or bytes. Undefined if the record was too large for a letter: then read it in its stream.
   */
  readonly record: unknown;
  /** The JSON text of the record as it was stored, with all digits of large numbers. */
  readonly recordText: string | undefined;
  /** The size of a record that is not in the letter. */
  readonly recordBytes: number | undefined;
  readonly attempts: number;
  readonly reason: DeadLetterReason;
  /** When its last attempt failed, RFC 3339. */
  readonly at: string;
}

/** A record that was given up, and the reason. */
export interface GivenUp {
  readonly id: string;
  readonly stream: string;
  readonly offset: string;
  /** The JSON text of the record, or bytes of a stream that has another type. */
  readonly record: JsonText | Uint8Array;
  readonly error: unknown;
  readonly attempts: number;
}

/** A larger record stays in its stream. Half of the default limit of a request. */
const RECORD_BYTES_MAX = 8 * 1024 * 1024;

/** Returns a dead letter as it is stored. `isBare`: without the record, because the letter was too large with it. */
export function envelopeOf(letter: GivenUp, clock: Clock, isBare = false): JsonText {
  const { record, error, ...facts } = letter;
  const head = JSON.stringify({ ...facts, reason: reasonOf(error), at: timeOf(clock) }).slice(
    0,
    -1,
  );
  const size = record instanceof JsonText ? utf8Of(record.text).length : record.length;
  if (isBare || size > RECORD_BYTES_MAX) return new JsonText(`${head},"recordBytes":${size}}`);
  if (record instanceof JsonText) return new JsonText(`${head},"record":${record.text}}`);
  return new JsonText(`${head},"base64":"${encodeBase64(record)}"}`);
}

/**
 * The dead letters of one stream. For tools and operators: each call reads the whole stream, and keeps the letters in
 * memory that are neither replayed nor discarded.
 *
 * ```ts
 * import { startNodeServer } from "hapax/node";
 * import { connectServer } from "hapax/processing";
 *
 * const server = await startNodeServer({ store: "memory", port: 0 });
 * const hapax = connectServer(server.url);
 * const orders = hapax.stream("/v1/stream/orders");
 * await orders.create();
 * await orders.append({ cents: "many" });
 * const pipeline = hapax.pipeline<{ cents: unknown }>({
 *   from: { streams: [orders] },
 *   group: "billing",
 *   each: ({ cents }) => {
 *     if (typeof cents !== "number") throw new TypeError("cents is no number");
 *   },
 *   deadLetter: "/v1/stream/dead",
 *   retry: { attemptsMax: 1 },
 *   onProgress: () => void pipeline.close(),
 * });
 * await pipeline.run();
 *
 * const letters = hapax.deadLetters("/v1/stream/dead");
 * const [letter] = await letters.list();
 * console.assert(letter?.reason.message === "TypeError: cents is no number");
 * console.assert((await letters.discard([letter?.id ?? ""])) === 1);
 * console.assert((await letters.discard([letter?.id ?? ""])) === 0);
 * await server.stop();
 * ```
 */
export class DeadLetters {
  readonly #hapax: Connection;
  readonly #stream: StreamTarget;
  readonly #clock: Clock;
  readonly #held = new Map<string, DeadLetter>();
  /** Names the life of the stream. */
  #position = "-1";

  constructor(hapax: Connection, stream: StreamTarget, clock: Clock) {
    this.#hapax = hapax;
    this.#stream = stream;
    this.#clock = clock;
  }

  /**
   * Lists the letters that are neither replayed nor discarded, the oldest first; at most `max`, default 100.
   */
  async list(
    filter: DeadLetterFilter & { readonly max?: number } = {},
  ): Promise<readonly DeadLetter[]> {
    return (await this.#find(filter)).slice(0, filter.max ?? 100);
  }

  /** Counts the letters by their reasons, the most frequent first. */
  async groups(): Promise<readonly DeadLetterGroup[]> {
    return groupLetters(await this.#find({}));
  }

  /** Those that match. Reads on from where it was. */
  async #find({ ids, fingerprint }: DeadLetterFilter): Promise<readonly DeadLetter[]> {
    await this.#update();
    const wanted = ids === undefined ? undefined : new Set(ids);
    return [...this.#held.values()].filter(
      ({ id, reason }) =>
        (wanted === undefined || wanted.has(id)) &&
        (fingerprint === undefined || reason.fingerprint === fingerprint),
    );
  }

  async #update(): Promise<void> {
    try {
      await this.#readOn();
    } catch (error) {
      if (!isHapaxError(error, "stream_replaced")) throw error;
      this.#held.clear();
      this.#position = "-1";
      await this.#readOn();
    }
  }

  async #readOn(): Promise<void> {
    const reading = readStored(this.#hapax, this.#stream, { from: this.#position });
    for await (const page of reading.pages()) {
      const places = new Places(page);
      for (const [index, record] of page.records.entries()) {
        this.#apply(mapOf(record), places.bytesAt(index));
      }
      this.#position = page.position;
    }
  }

  /**
   * Appends the records again, to their own streams or to `to`. Without a filter it replays all. Returns the number of
   * records.
   */
  replay(
    which: readonly string[] | DeadLetterFilter = {},
    options: { readonly to?: StreamTarget | undefined } = {},
  ): Promise<number> {
    return this.#handleAll(filterOf(which), "replayed", options.to);
  }

  /**
   * Marks the letters as handled, without a replay. The filter must not be empty. Returns the number of
   * letters.
   */
  async discard(which: readonly string[] | DeadLetterFilter): Promise<number> {
    const filter = filterOf(which);
    if (Object.values(filter).every((value) => value === undefined))
      throw new HapaxError("invalid_request", "discard must name ids or a fingerprint");
    return this.#handleAll(filter, "discarded");
  }

  async #handleAll(
    filter: DeadLetterFilter,
    handled: "replayed" | "discarded",
    to?: StreamTarget,
  ): Promise<number> {
    let count = 0;
    for (const { id } of await this.#find(filter)) {
      if (await this.#handle(id, handled, to)) count += 1;
    }
    return count;
  }

  /** Answers false if it is held no more. */
  async #handle(
    id: string,
    handled: "replayed" | "discarded",
    target?: StreamTarget,
  ): Promise<boolean> {
    for (;;) {
      await this.#update();
      const letter = this.#held.get(id);
      if (letter === undefined) return false;
      const to = handled === "replayed" ? (target ?? letter.stream) : undefined;
      const record = to === undefined ? undefined : await this.#recordOf(letter);
      try {
        await this.#hapax.transaction((tx) => {
          const [offset = ""] = this.#position.split("/");
          tx.expect(this.#stream, { offset });
          if (to !== undefined) tx.append(to, record);
          const place = to === undefined ? {} : { to: typeof to === "string" ? to : to.url };
          tx.append(this.#stream, { id, handled, ...place, at: timeOf(this.#clock) });
        });
        return true;
      } catch (error) {
        if (!isHapaxError(error, "tail_moved")) throw error;
      }
    }
  }

  async #recordOf({
    id,
    record,
    recordText,
    recordBytes,
    stream,
    offset,
  }: DeadLetter): Promise<unknown> {
    if (recordText !== undefined) return new JsonText(recordText);
    if (recordBytes === undefined) return record;
    const life = id.split("/").at(-2) ?? "";
    for await (const whole of this.#pagesFrom(stream, offset, life)) {
      const page = fromOffset(whole, offset);
      const places = new Places(page);
      const bytes = places.bytesAt(0).subarray(0, recordBytes);
      if (places.offsetAt(0) !== offset || bytes.length !== recordBytes) break;
      return codecOf(page.contentType).isJson ? new JsonText(textOfBytes(bytes)) : bytes;
    }
    throw new HapaxError("stream_gone", `${stream} has no such record at ${offset} any more`);
  }

  /** A letter of before a restore went back in time together with its record: the offset alone names it. */
  async *#pagesFrom(stream: string, offset: string, life: string) {
    try {
      yield* readStored(this.#hapax, stream, { from: `${offset}/${life}` }).pages();
    } catch (error) {
      if (!isHapaxError(error, "server_restored")) throw error;
      yield* readStored(this.#hapax, stream, { from: offset }).pages();
    }
  }

  #apply(members: ReadonlyMap<string, unknown>, bytes: Uint8Array): void {
    const id = members.get("id");
    if (typeof id !== "string") return;
    // In their order: a letter that comes again after it was handled is a letter again.
    this.#held.delete(id);
    if (members.has("handled")) return;
    const letter = letterOf(id, members, bytes);
    if (letter !== undefined) this.#held.set(id, letter);
  }
}

function filterOf(which: readonly string[] | DeadLetterFilter): DeadLetterFilter {
  // The guard of the language forgets readonly arrays.
  return Array.isArray(which) ? { ids: which as readonly string[] } : (which as DeadLetterFilter);
}

function letterOf(
  id: string,
  members: ReadonlyMap<string, unknown>,
  bytes: Uint8Array,
): DeadLetter | undefined {
  const [stream, offset, at] = ["stream", "offset", "at"].map((name) => members.get(name));
  const attempts = members.get("attempts");
  const base64 = members.get("base64");
  const reason = mapOf(members.get("reason"));
  const size = members.get("recordBytes");
  const recordBytes = typeof size === "number" ? size : undefined;
  const text = memberText(bytes, "record");
  const hasRecord = typeof base64 === "string" || text !== undefined || recordBytes !== undefined;
  if (typeof stream !== "string" || !hasRecord) return undefined;
  return {
    id,
    stream,
    offset: typeof offset === "string" ? offset : "",
    record: typeof base64 === "string" ? decodeBase64(base64) : members.get("record"),
    recordText: text === undefined ? undefined : textOfBytes(text),
    recordBytes,
    attempts: typeof attempts === "number" ? attempts : 0,
    reason: {
      fingerprint: textOf(reason.get("fingerprint")),
      message: textOf(reason.get("message")),
    },
    at: textOf(at),
  };
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function timeOf(clock: Clock): string {
  return formatRfc3339(clock.nowMs());
}
