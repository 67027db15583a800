/**
 * The Worker in front of objects with streams. It finds the object of a path, and holds live answers, so that objects sleep while
 * readers stay: it gets their events on a WebSocket, and has the timers.
 *
 * A stream is in one object, however its path is spelled: the object follows from the name of the stream, which is decoded.
 */

import { systemClock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import { HEADER } from "../../protocol/headers.ts";
import { LIMITS } from "../../protocol/limits.ts";
import { isReserved } from "../../protocol/reserved.ts";
import { encodeHeartbeat } from "../../protocol/sse.ts";
import { fetchRefusal } from "./fetch-refusal.ts";
import { parseStreamPath } from "../../protocol/values.ts";
import type { ObjectNamespace, ObjectSocket } from "./object-platform.ts";
import { SOCKET_CUT, SOCKET_END, TAKEN_BYTES } from "./reader-socket.ts";
import { BRIDGE_HEADER, LIFE_HEADER, OBJECT_HEADER } from "./streams-object.ts";

/** Options of the Worker in front of objects with streams. */
export interface StreamsDoorOptions<Env> {
  /** Returns the binding of the class that `durableStreams` has made. */
  readonly namespace: (env: Env) => ObjectNamespace;
  /**
   * Returns the name of the object that has a path, such as its first segment. The path of a stream is its name: percent-decoded, so that
   * `%40` and `@` lead to one object. Streams of one object can share transactions, groups and forks. Undefined: the path belongs to no object,
   * and the request must name one: `?object=name`. For paths that are no streams, such as those of groups, `?object=name` comes first.
   */
  readonly objectOf: (path: string) => string | undefined;
  /**
   * Looks at a request before it is sent on. Returns the request to send, with headers of your own if you like, or the answer that
   * refuses it. Default: all requests are sent on, and the server in the object checks them.
   */
  readonly admit?: (request: Request, env: Env) => Request | Response | Promise<Request | Response>;
  /** Milliseconds between two comment lines to a live reader. A reader that has left is noticed by them. Default 15,000. */
  readonly heartbeatMs?: number;
}

/** A Worker: `export default` it. */
export interface StreamsDoor<Env> {
  fetch(request: Request, env: Env): Promise<Response>;
}

const HEARTBEAT = encodeHeartbeat();
/** Names of objects come from paths, and from anybody. */
const NAME_CHARS_MAX = 1024;
/** Of an upgrade, and not of the answer that is made of it. */
const HOP_HEADERS = [LIFE_HEADER, "Upgrade", "Connection", "Sec-WebSocket-Accept"];

/**
 * Makes a Worker that sends each request to the Durable Object that has its stream. The objects are of a class that
 * `durableStreams` has made.
 */
export function streamsDoor<Env>(options: StreamsDoorOptions<Env>): StreamsDoor<Env> {
  const { namespace, heartbeatMs = LIMITS.sseHeartbeatMs } = options;
  return {
    async fetch(request, env) {
      const admitted = await (options.admit?.(request, env) ?? request);
      if (admitted instanceof Response) return admitted;
      const url = new URL(admitted.url);
      const name = nameOf(url, options.objectOf);
      if (name === undefined || name === "" || name.length > NAME_CHARS_MAX) {
        const words = "the path belongs to no object: name one with ?object=";
        return fetchRefusal(request, new HapaxError("invalid_request", words));
      }
      const binding = namespace(env);
      // The id is of the same binding, whose type we do not know.
      const stub = binding.get(binding.idFromName(name) as never);
      const isLive = admitted.method === "GET" && url.searchParams.get("live") === "sse";
      try {
        if (!isLive) return await stub.fetch(plain(admitted, name));
        const answer = await stub.fetch(bridged(admitted));
        const { webSocket } = answer as Response & { readonly webSocket?: ObjectSocket | null };
        if (webSocket === undefined || webSocket === null) return answer;
        return new LiveBridge(webSocket, heartbeatMs).response(answer.headers);
      } catch {
        // It was ended in the middle, or has too much to do. Whether a write was stored is not known: its retry will say.
        const words = "the object of this path gave no answer; send the request again";
        return fetchRefusal(request, new HapaxError("shutting_down", words));
      }
    },
  };
}

/**
 * The object of a stream follows from its path, so that no caller makes a second stream of the same path in another object. A caller names
 * the object of other paths, such as those of groups.
 */
function nameOf(url: URL, objectOf: StreamsDoorOptions<never>["objectOf"]): string | undefined {
  const asked = url.searchParams.get("object") ?? undefined;
  const stream = streamOf(url);
  if (stream === undefined) return asked ?? objectOf(url.pathname);
  return objectOf(stream) ?? asked;
}

/** Undefined: it is not the path of a stream. What is no path at all is refused by the object. */
function streamOf({ pathname }: URL): string | undefined {
  const parsed = parseStreamPath(pathname);
  return parsed.kind === "invalid" || isReserved(parsed.name) ? undefined : parsed.name;
}

/** These headers are between the door and its objects: with the one an object reads no body, and the other says which object it is. */
function plain(request: Request, name: string): Request {
  const isOfStream = streamOf(new URL(request.url)) !== undefined;
  const given = [BRIDGE_HEADER, OBJECT_HEADER].some((header) => request.headers.has(header));
  if (isOfStream && !given) return request;
  const headers = new Headers(request.headers);
  headers.delete(BRIDGE_HEADER);
  if (isOfStream) headers.delete(OBJECT_HEADER);
  else headers.set(OBJECT_HEADER, encodeURIComponent(name));
  return new Request(request, { headers });
}

function bridged({ url, headers: sent }: Request): Request {
  const headers = new Headers(sent);
  headers.set("Upgrade", "websocket");
  headers.set(BRIDGE_HEADER, "1");
  return new Request(url, { headers });
}

/** A live answer whose events come on a WebSocket. */
class LiveBridge {
  readonly #socket: ObjectSocket;
  readonly #heartbeatMs: number;
  readonly #queue: Uint8Array[] = [];
  readonly #writer: WritableStreamDefaultWriter<Uint8Array>;
  readonly #readable: ReadableStream<Uint8Array>;
  #isWriting = false;
  #isEnding = false;
  #isOver = false;
  /** Bytes of the object that the reader has taken, and those that the object knows of. */
  #taken = 0;
  #told = 0;
  #cancelLife: () => void = () => undefined;
  #cancelBeat: () => void = () => undefined;

  constructor(socket: ObjectSocket, heartbeatMs: number) {
    this.#socket = socket;
    this.#heartbeatMs = heartbeatMs;
    const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
    this.#readable = readable;
    this.#writer = writable.getWriter();
  }

  response(given: Headers): Response {
    const socket = this.#socket;
    // Newer dates of the platform hand out blobs.
    if ("binaryType" in socket) socket.binaryType = "arraybuffer";
    socket.addEventListener("message", ({ data }) => {
      if (data instanceof ArrayBuffer) this.#push(new Uint8Array(data));
    });
    socket.addEventListener("close", ({ code }) => {
      if (code === SOCKET_END) this.#end();
      else this.#drop();
    });
    socket.addEventListener("error", () => {
      this.#drop();
    });
    socket.accept();
    // The reader has left: nothing else would say so before the next event.
    this.#writer.closed.catch(() => {
      this.#drop();
    });
    const lifeMs = Number(given.get(LIFE_HEADER));
    this.#cancelLife = systemClock.after(Math.max(0, lifeMs), () => {
      this.#end();
    });
    this.#beat();
    const headers = new Headers(given);
    for (const name of HOP_HEADERS) headers.delete(name);
    headers.set(HEADER.contentType, "text/event-stream");
    return new Response(this.#readable, { status: 200, headers });
  }

  #push(bytes: Uint8Array): void {
    if (this.#isOver || this.#isEnding) return;
    this.#queue.push(bytes);
    void this.#write();
  }

  async #write(): Promise<void> {
    if (this.#isWriting || this.#isOver) return;
    this.#isWriting = true;
    try {
      for (let piece = this.#queue.shift(); piece !== undefined; piece = this.#queue.shift()) {
        await this.#writer.write(piece);
        if (piece !== HEARTBEAT) this.#tell(piece.length);
      }
      if (this.#isEnding) {
        this.#stop(SOCKET_END);
        await this.#writer.close();
      }
    } catch {
      this.#drop();
    } finally {
      this.#isWriting = false;
    }
  }

  /** The object sends no more than a bounded number of bytes beyond those that were taken. */
  #tell(bytes: number): void {
    this.#taken += bytes;
    if (this.#taken - this.#told < TAKEN_BYTES || this.#isOver) return;
    this.#told = this.#taken;
    this.#socket.send(String(this.#taken));
  }

  #beat(): void {
    this.#cancelBeat = systemClock.after(this.#heartbeatMs, () => {
      if (this.#queue.length === 0 && !this.#isWriting) this.#push(HEARTBEAT);
      this.#beat();
    });
  }

  /** Ends the answer behind what has come. */
  #end(): void {
    if (this.#isOver || this.#isEnding) return;
    this.#isEnding = true;
    void this.#write();
  }

  /** Breaks the answer off, so that the reader sees that it is not whole. */
  #drop(): void {
    if (this.#isOver) return;
    this.#stop(SOCKET_CUT);
    this.#writer.abort(new Error("the answer was cut")).catch(() => undefined);
  }

  #stop(code: number): void {
    this.#isOver = true;
    this.#queue.length = 0;
    this.#cancelLife();
    this.#cancelBeat();
    try {
      this.#socket.close(code);
    } catch {
      // It is closed.
    }
  }
}
