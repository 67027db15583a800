/**
 * Decodes Server-Sent Events by the HTML standard. Small, because it is a part of every bundle of the client.
 *
 *   - its events do not depend on how the bytes were cut into chunks, and an event without its closing blank line is
 *     never reported;
 *   - it ignores `id` and `retry` like unknown fields: our clients resume by the offset of a control event;
 *   - `chars` counts the characters of the unfinished event, give or take a chunk: its owner sets the limit.
 */

export interface SseEvent {
  /** Empty for an event without a name, which browsers call `message`. */
  readonly event: string;
  readonly data: string;
}

export class SseDecoder {
  readonly #utf8 = new TextDecoder(); // Drops a byte order mark at the start, and only there.
  /** The last chunk ended with a CR. It has ended its line; an LF that follows belongs to it. */
  #isAfterCr = false;
  #line = "";
  #event = "";
  #data: string[] = [];
  /** Characters held. */
  chars = 0;

  /** Returns the events that these bytes complete, in order. */
  *push(bytes: Uint8Array): Generator<SseEvent, void, undefined> {
    let text = this.#utf8.decode(bytes, { stream: true });
    if (text === "") return;
    if (this.#isAfterCr && text.startsWith("\n")) text = text.slice(1);
    this.#isAfterCr = text.endsWith("\r");
    const [first = "", ...lines] = text.split(/\r\n?|\n/);
    this.#line += first;
    this.chars += text.length;
    for (const line of lines) {
      if (this.#line === "") {
        const event = this.#event;
        const data = this.#data;
        this.#event = "";
        this.#data = [];
        this.chars = 0;
        if (data.length > 0) yield { event, data: data.join("\n") };
      } else this.#take(this.#line);
      this.#line = line;
    }
  }

  #take(line: string): void {
    const [head, field] = /^(data|event)(?:: ?|$)/.exec(line) ?? [];
    if (head === undefined) return;
    const value = line.slice(head.length);
    if (field === "data") this.#data.push(value);
    else this.#event = value;
  }
}
