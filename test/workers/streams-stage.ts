/** Streams in objects of a real workerd, and what tests do with them over HTTP. */

import { expect } from "vitest";
import { type ObjectsHost, startObjects, type TestObject } from "../kits/workerd-objects.ts";

const source = new URL("fixtures/streams-worker.ts", import.meta.url);

export interface Stage {
  readonly host: ObjectsHost;
  /** The URL of a stream of the object with this name. */
  url(object: string, stream: string): string;
  object(name: string): TestObject;
  life(name: string): Promise<Life>;
  stop(): Promise<void>;
}

export interface Life {
  /** Grows with each life of an object in this process. */
  readonly life: number;
  readonly sockets: number;
  readonly alarm: number | null;
  /** Alarms that have come in this process. */
  readonly alarms: number;
}

export async function startStage(texts: Readonly<Record<string, string>> = {}): Promise<Stage> {
  const host = await startObjects({ source, classes: ["Streams"], texts });
  const object = (name: string): TestObject => host.object("Streams", name);
  return {
    host,
    object,
    url: (name, stream) => `${host.url}/v1/stream/@${name}/${stream}`,
    life: (name) => object(name).json<Life>("/_probe/life"),
    stop: () => host.stop(),
  };
}

export async function create(url: string, headers: Record<string, string> = {}): Promise<void> {
  const answer = await fetch(url, {
    method: "PUT",
    headers: { "Content-Type": "text/plain", ...headers },
  });
  expect([200, 201], await answer.text()).toContain(answer.status);
}

/** Appends as a producer. Returns the status, or undefined if there was no answer. */
export async function append(
  url: string,
  body: string,
  [producer, sequence]: readonly [string, number],
): Promise<number | undefined> {
  try {
    const answer = await fetch(url, {
      method: "POST",
      headers: {
        "Content-Type": "text/plain",
        "Producer-Id": producer,
        "Producer-Epoch": "0",
        "Producer-Seq": String(sequence),
      },
      body,
      signal: AbortSignal.timeout(20_000),
    });
    await answer.arrayBuffer();
    return answer.status;
  } catch {
    return undefined;
  }
}

/** The whole stream, page by page. */
export async function readWhole(url: string): Promise<string> {
  let text = "";
  for (let offset = "-1"; ;) {
    const answer = await fetch(`${url}?offset=${offset}`);
    text += await answer.text();
    if (answer.status !== 200) throw new Error(`${url}: ${answer.status} ${text}`);
    if (answer.headers.get("Stream-Up-To-Date") === "true") return text;
    offset = answer.headers.get("Stream-Next-Offset") ?? "";
  }
}

/** A live reader that comes back at its own offset whenever its answer ends. */
export class LiveReader {
  /** The data of all events, in the order in which they came. */
  text = "";
  /** How often the answer began. */
  opened = 0;
  readonly #url: string;
  readonly #stopping = new AbortController();
  #offset: string;
  readonly #done: Promise<void>;

  constructor(url: string, offset = "-1") {
    this.#url = url;
    this.#offset = offset;
    this.#done = this.#run();
  }

  /** Resolves when the text has so many characters. */
  async has(characters: number): Promise<void> {
    for (let wait = 0; this.text.length < characters; wait += 1) {
      if (wait > 3000) throw new Error(`${this.text.length} of ${characters} characters came`);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  async opens(times = 1): Promise<void> {
    for (let wait = 0; this.opened < times; wait += 1) {
      if (wait > 3000) throw new Error("the reader did not open");
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#done;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      try {
        const answer = await fetch(`${this.#url}?offset=${this.#offset}&live=sse`, { signal });
        if (answer.status !== 200) throw new Error(await answer.text());
        this.opened += 1;
        await this.#take(answer);
      } catch {
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    }
  }

  /** The data of an event counts with the control event behind it, which says where it ends. */
  async #take(answer: Response): Promise<void> {
    let rest = "";
    let data = "";
    const decoder = new TextDecoder();
    for await (const piece of answer.body ?? []) {
      rest += decoder.decode(piece, { stream: true });
      for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
        const lines = rest.slice(0, end).split("\n");
        rest = rest.slice(end + 2);
        const text = lines.filter((line) => line.startsWith("data:")).map((line) => line.slice(5));
        if (lines.some((line) => line === "event: control" || line === "event:control")) {
          const control = JSON.parse(text.join("\n")) as { streamNextOffset: string };
          this.text += data;
          data = "";
          this.#offset = control.streamNextOffset;
        } else if (text.length > 0) data += text.join("\n");
      }
    }
  }
}
