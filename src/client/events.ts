/**
 * Decodes Server-Sent Events for a client. The general decoder is protocol/sse.ts; this one is smaller.
 *
 *   - it gives the events of the general decoder, for every division of the bytes into chunks. One difference: a
 *     line that ends with a lone CR at the end of a chunk ends with the next chunk, which may bring the LF;
 *   - `chars` counts the characters of the unfinished event, give or take a chunk: its owner sets the limit.
 */

import type { SseEvent } from "../protocol/sse.ts";

export class Events {
  readonly #utf8 = new TextDecoder(); // Drops a byte order mark at the start, and only there.
  /** A CR at the end of the last chunk. */
  #carry = "";
  #line = "";
  #event = "";
  #data: string[] = [];
  /** Characters held. */
  chars = 0;

  /** Returns the events that these bytes complete, in order. */
  *push(bytes: Uint8Array): Generator<SseEvent, void, undefined> {
    let text = this.#carry + this.#utf8.decode(bytes, { stream: true });
    this.#carry = text.endsWith("\r") ? "\r" : "";
    if (this.#carry !== "") text = text.slice(0, -1);
    const [first = "", ...lines] = text.split(/\r\n?|\n/);
    this.#line += first;
    this.chars += text.length;
    for (const line of lines) {
      if (this.#line === "") yield* this.#dispatch();
      else this.#take(this.#line);
      this.#line = line;
    }
  }

  *#dispatch(): Generator<SseEvent, void, undefined> {
    const [event, data] = [this.#event, this.#data];
    this.#event = "";
    this.#data = [];
    this.chars = 0;
    if (data.length > 0) yield { event, data: data.join("\n") };
  }

  #take(line: string): void {
    const [head, field] = /^(data|event)(?:: ?|$)/.exec(line) ?? [];
    if (head === undefined) return;
    const value = line.slice(head.length);
    if (field === "data") this.#data.push(value);
    else this.#event = value;
  }
}
