/** The parts of the Workers platform that streams in objects need. They accept the platform's own types. */

import type { SqliteObjectStorage } from "../stores/durable-object/storage.ts";

/** A WebSocket of the platform, as an object and a Worker have it. */
export interface ObjectSocket {
  accept(): void;
  send(message: string | ArrayBuffer | ArrayBufferView): void;
  close(code?: number, reason?: string): void;
  serializeAttachment(attachment: unknown): void;
  deserializeAttachment(): unknown;
  addEventListener(type: "message", run: (event: { readonly data: unknown }) => void): void;
  addEventListener(
    type: "close",
    run: (event: { readonly code: number; readonly wasClean: boolean }) => void,
  ): void;
  addEventListener(type: "error", run: () => void): void;
}

/** The storage of an object, with its one alarm. */
export interface AlarmStorage {
  getAlarm(): Promise<number | null>;
  setAlarm(timeMs: number): Promise<void>;
}

/** The `ctx` that the constructor of a Durable Object gets. */
export interface ObjectContext {
  readonly storage: SqliteObjectStorage & AlarmStorage;
  blockConcurrencyWhile<T>(run: () => Promise<T>): Promise<T>;
  acceptWebSocket(socket: ObjectSocket, tags?: string[]): void;
  getWebSockets(tag?: string): ObjectSocket[];
  abort(reason?: string): void;
}

/** A Durable Object, as a Worker reaches it. */
export interface ObjectStub {
  fetch(request: Request): Promise<Response>;
}

/** The binding of a class of Durable Objects: `env.STREAMS`. */
export interface ObjectNamespace {
  idFromName(name: string): unknown;
  get(id: never): ObjectStub;
}
