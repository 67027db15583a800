/**
 * The vocabulary of tests that speak HTTP by hand: bytes on a socket, a tiny client that hides nothing,
 * and a reader of Server-Sent Events written after the HTML standard and not after our encoder.
 */

import { Agent, type IncomingHttpHeaders, type IncomingMessage, request } from "node:http";
import { connect, type Socket } from "node:net";
import { SseDecoder, type SseEvent } from "../../src/protocol/sse-decoder.ts";

export type { SseEvent } from "../../src/protocol/sse-decoder.ts";

export interface HttpAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
  readonly text: string;
}

export interface CallOptions {
  readonly headers?: Record<string, string>;
  readonly body?: string | Uint8Array;
  readonly agent?: Agent;
  readonly signal?: AbortSignal;
}

/** One request with exactly the headers given; the path is sent as it is written. */
export function call(
  method: string,
  base: string,
  path: string,
  options: CallOptions = {},
): Promise<HttpAnswer> {
  const { headers = {}, body, agent, signal } = options;
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(base);
    const sent = request({
      method,
      hostname,
      port,
      path,
      headers:
        body === undefined ? headers : { "content-length": Buffer.byteLength(body), ...headers },
      ...(agent === undefined ? {} : { agent }),
      ...(signal === undefined ? {} : { signal }),
    });
    sent.on("error", reject);
    sent.on("response", (response) => {
      collect(response).then((received) => {
        const status = response.statusCode ?? 0;
        resolve({ status, headers: response.headers, body: received, text: received.toString() });
      }, reject);
    });
    sent.end(body);
  });
}

function collect(response: IncomingMessage): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const pieces: Buffer[] = [];
    response.on("data", (piece: Buffer) => pieces.push(piece));
    response.on("end", () => {
      resolve(Buffer.concat(pieces));
    });
    response.on("error", reject);
  });
}

/** The members of a problem document, or of any JSON object. */
export function members(answer: { readonly text: string }): Map<string, unknown> {
  const value: unknown = JSON.parse(answer.text);
  return new Map<string, unknown>(Object.entries(value ?? {}));
}

export function openSocket(base: string): Promise<Socket> {
  const { hostname, port } = new URL(base);
  return new Promise((resolve, reject) => {
    const socket = connect({ host: hostname, port: Number(port), noDelay: true });
    socket.once("error", reject);
    socket.once("connect", () => {
      socket.off("error", reject);
      // The server may cut it, which is what the tests look for by other means.
      socket.on("error", () => undefined);
      resolve(socket);
    });
  });
}

/** Everything that the socket receives until the other side ends it. */
export function untilClosed(socket: Socket): Promise<Buffer> {
  return new Promise((resolve) => {
    const pieces: Buffer[] = [];
    socket.on("data", (piece) => pieces.push(Buffer.from(piece)));
    socket.once("close", () => {
      resolve(Buffer.concat(pieces));
    });
  });
}

/**
 * Sends bytes and resolves with the first whole answer, or with `undefined` if the connection ends
 * without one.
 */
export async function sendRaw(
  base: string,
  bytes: string | Uint8Array,
): Promise<HttpAnswer | undefined> {
  const socket = await openSocket(base);
  try {
    return await new Promise((resolve) => {
      let received = Buffer.alloc(0);
      socket.on("data", (piece) => {
        received = Buffer.concat([received, piece]);
        const answer = parseAnswer(received, false);
        if (answer !== undefined) resolve(answer);
      });
      socket.once("close", () => {
        resolve(parseAnswer(received, true));
      });
      socket.write(bytes);
    });
  } finally {
    socket.destroy();
  }
}

/** The first answer in the bytes, once it is whole. Only answers with a known length are needed. */
export function parseAnswer(bytes: Buffer, isEnded: boolean): HttpAnswer | undefined {
  const end = bytes.indexOf("\r\n\r\n");
  if (end === -1) return undefined;
  const [line = "", ...fields] = bytes.subarray(0, end).toString("latin1").split("\r\n");
  const headers: IncomingHttpHeaders = {};
  for (const field of fields) {
    const colon = field.indexOf(":");
    headers[field.slice(0, colon).toLowerCase()] = field.slice(colon + 1).trim();
  }
  const status = Number(line.split(" ")[1]);
  const rest = bytes.subarray(end + 4);
  if (status < 200) return parseAnswer(rest, isEnded);
  const length =
    status === 204 || status === 304 ? 0 : Number(headers["content-length"] ?? Infinity);
  if (rest.length < length && !isEnded) return undefined;
  const body = rest.subarray(0, length);
  return { status, headers, body, text: body.toString() };
}

/** The events that are complete in the text. */
export function parseEvents(text: string): SseEvent[] {
  return [...new SseDecoder().push(new TextEncoder().encode(text))];
}

export interface Control {
  readonly streamNextOffset: string;
  readonly streamCursor?: string;
  readonly upToDate?: boolean;
  readonly streamClosed?: boolean;
}

export function controlsOf(events: readonly SseEvent[]): Control[] {
  return events
    .filter(({ event }) => event === "control")
    .map(({ data }) => JSON.parse(data) as Control); // The tests compare every member.
}

export interface SseClient {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** All that was received so far. */
  text(): string;
  events(): SseEvent[];
  /** Resolves when the condition holds; rejects if the connection ends before. */
  until(condition: (client: SseClient) => boolean): Promise<void>;
  /** Resolves when the server has ended the answer, with whether it did so properly. */
  readonly ended: Promise<"complete" | "cut">;
  close(): void;
}

export function openSse(
  base: string,
  path: string,
  headers: Record<string, string> = {},
): Promise<SseClient> {
  const { hostname, port } = new URL(base);
  return new Promise((resolve, reject) => {
    const sent = request({ hostname, port, path, headers, agent: new Agent({ keepAlive: true }) });
    sent.on("error", reject);
    sent.on("response", (response) => {
      resolve(follow(response));
    });
    sent.end();
  });
}

function follow(response: IncomingMessage): SseClient {
  const pieces: Buffer[] = [];
  const watchers = new Set<() => void>();
  const wake = (): void => {
    for (const watcher of [...watchers]) watcher();
  };
  response.on("error", () => undefined);
  response.on("data", (piece: Buffer) => {
    pieces.push(piece);
    wake();
  });
  const ended = new Promise<"complete" | "cut">((resolve) => {
    response.once("close", () => {
      resolve(response.complete ? "complete" : "cut");
      wake();
    });
  });
  const client: SseClient = {
    status: response.statusCode ?? 0,
    headers: response.headers,
    text: () => Buffer.concat(pieces).toString(),
    events: () => parseEvents(client.text()),
    until: (condition) =>
      new Promise((resolve, reject) => {
        const look = (): void => {
          if (!condition(client)) {
            if (!response.closed) return;
            reject(new Error(`the connection ended after ${JSON.stringify(client.text())}`));
          }
          watchers.delete(look);
          resolve();
        };
        watchers.add(look);
        look();
      }),
    ended,
    close: () => {
      response.destroy();
    },
  };
  return client;
}

/** Resolves when the condition holds; it is looked at again after every turn of the event loop. */
export function eventually(condition: () => boolean): Promise<void> {
  return new Promise((resolve) => {
    const look = (): void => {
      if (condition()) resolve();
      else setImmediate(look);
    };
    look();
  });
}
