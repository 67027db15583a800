/**
 * Records that a pipeline has given up, and what becomes of them. They lie in a JSON stream: each dead letter is one
 * record, and so is the note that it was handled.
 *
 *   DL1  a letter is pending until a later record of the stream says that it was handled;
 *   DL2  a letter is replayed or discarded once: the note, and the record that is appended again, are one transaction,
 *        which is refused if anything has come to the stream since it was read;
 *   DL3  what is no dead letter is left alone.
 *
 *   | dead letter  | `{id, stream, offset, index, record or base64, error: {name, message}, attempts, at}` |
 *   | its handling | `{id, handled: "replayed" or "discarded", to?, at}`                                   |
 */

import { isHapaxError } from "../errors.ts";
import { type Clock, waitingClock } from "../clock.ts";
import { formatRfc3339 } from "../wire/values.ts";
import { mapOf } from "./calls.ts";
import type { Connection } from "./connection.ts";
import type { StreamTarget } from "./paths.ts";

/** A record that a pipeline has given up. */
export interface DeadLetter {
  /** Names the record for ever: `<group>/<stream>/<offset>/<index>`. */
  readonly id: string;
  /** The stream that it is from. */
  readonly stream: string;
  /** Where its page began, and its place in the page. */
  readonly offset: string;
  readonly index: number;
  /** A JSON value, a text, or bytes. */
  readonly record: unknown;
  readonly error: { readonly name: string; readonly message: string };
  readonly attempts: number;
  /** When it was given up, RFC 3339. */
  readonly at: string;
}

/** Of a message: enough to know what it was, too little to hurt. */
const MESSAGE_CHARS_MAX = 2_000;
/** Of one base64 step: a multiple of three. */
const CHUNK_BYTES = 24_576;

/** A dead letter as it is stored. */
export function envelopeOf(
  letter: Omit<DeadLetter, "error" | "at"> & { readonly error: unknown },
  clock: Clock,
): unknown {
  const { record, error, ...facts } = letter;
  const { name, message } =
    error instanceof Error ? error : { name: "Error", message: String(error) };
  return {
    ...facts,
    ...(record instanceof Uint8Array ? { base64: toBase64(record) } : { record }),
    error: { name, message: message.slice(0, MESSAGE_CHARS_MAX) },
    at: timeOf(clock),
  };
}

/** What became of a request for one letter. */
export type Handled = "replayed" | "discarded" | "not_pending";

/**
 * The dead letters of one stream. Made for tools: it reads the whole stream, and holds those that are pending.
 *
 * ```ts
 * import { startNodeServer } from "hapax/node";
 * import { connectServer, createPipeline, DeadLetters } from "hapax/processing";
 *
 * const server = await startNodeServer({ port: 0 });
 * const hapax = connectServer(server.url);
 * const orders = hapax.stream("/v1/stream/orders");
 * await orders.create();
 * await orders.append({ cents: "many" });
 * const pipeline = createPipeline<{ cents: unknown }>(hapax, {
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
 * const letters = new DeadLetters(hapax, "/v1/stream/dead");
 * const [letter] = await letters.pending();
 * console.assert(letter?.error.message === "cents is no number");
 * console.assert((await letters.discard(letter?.id ?? "")) === "discarded");
 * console.assert((await letters.discard(letter?.id ?? "")) === "not_pending");
 * await server.stop();
 * ```
 */
export class DeadLetters {
  readonly #hapax: Connection;
  readonly #stream: StreamTarget;
  readonly #clock: Clock;
  readonly #pending = new Map<string, DeadLetter>();
  #offset = "-1";

  constructor(hapax: Connection, stream: StreamTarget, clock: Clock = waitingClock) {
    this.#hapax = hapax;
    this.#stream = stream;
    this.#clock = clock;
  }

  /** Those that are not handled, the oldest first. Reads on from where it was. */
  async pending(): Promise<readonly DeadLetter[]> {
    const reading = this.#hapax.stream(this.#stream).read({ from: this.#offset });
    for await (const page of reading.pages()) {
      for (const record of page.records) this.#apply(mapOf(record));
      this.#offset = page.nextOffset;
    }
    return [...this.#pending.values()];
  }

  /** Appends the record again, to the stream that it is from or to another one. DL2. */
  replay(id: string, to?: StreamTarget): Promise<Handled> {
    return this.#handle(id, "replayed", to);
  }

  /** Leaves the record out for good. DL2. */
  discard(id: string): Promise<Handled> {
    return this.#handle(id, "discarded");
  }

  async #handle(
    id: string,
    handled: "replayed" | "discarded",
    target?: StreamTarget,
  ): Promise<Handled> {
    for (;;) {
      await this.pending();
      const letter = this.#pending.get(id);
      if (letter === undefined) return "not_pending";
      const to = handled === "replayed" ? (target ?? letter.stream) : undefined;
      try {
        await this.#hapax.transaction((tx) => {
          tx.expect(this.#stream, { offset: this.#offset });
          if (to !== undefined) tx.append(to, letter.record);
          const place = to === undefined ? {} : { to: typeof to === "string" ? to : to.url };
          tx.append(this.#stream, { id, handled, ...place, at: timeOf(this.#clock) });
        });
        return handled;
      } catch (error) {
        if (!isHapaxError(error, "tail_moved")) throw error;
      }
    }
  }

  /** DL1, DL3 */
  #apply(members: ReadonlyMap<string, unknown>): void {
    const id = members.get("id");
    if (typeof id !== "string") return;
    // In their order: a letter that comes again after it was handled is a letter again.
    this.#pending.delete(id);
    if (members.has("handled")) return;
    const letter = letterOf(id, members);
    if (letter !== undefined) this.#pending.set(id, letter);
  }
}

function letterOf(id: string, members: ReadonlyMap<string, unknown>): DeadLetter | undefined {
  const [stream, offset, at] = ["stream", "offset", "at"].map((name) => members.get(name));
  const [index, attempts] = ["index", "attempts"].map((name) => members.get(name));
  const base64 = members.get("base64");
  const error = mapOf(members.get("error"));
  if (typeof stream !== "string" || (typeof base64 !== "string" && !members.has("record"))) {
    return undefined;
  }
  return {
    id,
    stream,
    offset: typeof offset === "string" ? offset : "",
    index: typeof index === "number" ? index : 0,
    record: typeof base64 === "string" ? fromBase64(base64) : members.get("record"),
    error: { name: textOf(error.get("name")), message: textOf(error.get("message")) },
    attempts: typeof attempts === "number" ? attempts : 0,
    at: textOf(at),
  };
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function timeOf(clock: Clock): string {
  return formatRfc3339(clock.nowMs());
}

function toBase64(bytes: Uint8Array): string {
  const pieces: string[] = [];
  for (let at = 0; at < bytes.length; at += CHUNK_BYTES) {
    const codes = Array.from(bytes.subarray(at, at + CHUNK_BYTES));
    pieces.push(btoa(String.fromCharCode(...codes)));
  }
  return pieces.join("");
}

function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}
