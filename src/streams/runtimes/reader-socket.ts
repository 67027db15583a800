/**
 * A live reader on a hibernatable WebSocket: the object sleeps while its readers stay. A Worker is at the other end
 * (streams-door.ts): it sends the events on, and has the timers.
 *
 *   - what the socket knows of the reader is written in the step in which the bytes are sent, so a reader that goes on after a sleep
 *     misses nothing and gets nothing twice;
 *   - the Worker says how many bytes have been taken; beyond that an object sends a bounded number;
 *   - the socket knows when its reader must end. The Worker ends it then, and the object sends nothing later, so that a credential that
 *     is over shows nothing to a client that holds the socket itself.
 */

import type { Clock } from "../../base/clock.ts";
import type { LiveSink, ReaderBridge, BridgedPlace } from "../server/exchange.ts";
import { whenStuck } from "../server/stuck.ts";
import type { ObjectSocket } from "./object-platform.ts";

/** The Worker says what has been taken each time that it is so much. */
export const TAKEN_BYTES = 64 * 1024;
/** The Worker ends the answer whole. */
export const SOCKET_END = 1000;
/** The Worker drops the answer. */
export const SOCKET_CUT = 4001;
/** A message of the platform has at most 32 MiB, and older ones 1 MiB. */
const MESSAGE_BYTES_MAX = 512 * 1024;

/** What a socket keeps of its reader. */
interface Attachment extends BridgedPlace {
  readonly hapax: "reader";
  /** Bytes that were sent on this socket. */
  readonly sent: number;
  /** Nothing is sent from then on. Unix time. */
  readonly endsAtMs: number;
}

/** What is left of a reader after a sleep. */
export type KeptReader = Pick<Attachment, "sent" | "endsAtMs">;

export class ReaderSocket implements LiveSink {
  readonly bridge: ReaderBridge;
  lifeMs = 0;
  readonly #socket: ObjectSocket;
  readonly #clock: Clock;
  #sent: number;
  #taken: number;
  #endsAtMs: number;
  #isClosed = false;
  readonly #drains: (() => void)[] = [];
  readonly #closes: (() => void)[] = [];

  constructor(
    socket: ObjectSocket,
    clock: Clock,
    { sent, endsAtMs }: KeptReader = { sent: 0, endsAtMs: Infinity },
  ) {
    this.#socket = socket;
    this.#clock = clock;
    this.#sent = sent;
    this.#taken = sent;
    this.#endsAtMs = endsAtMs;
    this.bridge = {
      lives: (lifeMs) => {
        this.lifeMs = lifeMs;
        // After a sleep the identity is not known, and the earlier end counts.
        this.#endsAtMs = Math.min(this.#endsAtMs, clock.nowMs() + lifeMs);
      },
      moved: (place) => {
        if (this.#isClosed) return;
        const attachment: Attachment = {
          hapax: "reader",
          ...place,
          sent: this.#sent,
          endsAtMs: this.#endsAtMs,
        };
        socket.serializeAttachment(attachment);
      },
    };
  }

  /** Less than the Worker counts by is as good as taken. */
  get queuedBytes(): number {
    const bytes = this.#sent - this.#taken;
    return bytes < 2 * TAKEN_BYTES ? 0 : bytes;
  }

  write(bytes: Uint8Array): void {
    if (this.#clock.nowMs() >= this.#endsAtMs) {
      this.end();
      return;
    }
    for (let at = 0; at < bytes.length && !this.#isClosed; at += MESSAGE_BYTES_MAX) {
      const piece = bytes.subarray(at, at + MESSAGE_BYTES_MAX);
      try {
        this.#socket.send(piece);
        this.#sent += piece.length;
      } catch {
        this.closed(); // The other side has gone, and its close has not come yet.
      }
    }
  }

  /** The Worker has passed on so many bytes since the socket was opened. */
  taken(bytes: number): void {
    this.#taken = Math.min(this.#sent, Math.max(this.#taken, bytes));
    if (this.queuedBytes === 0) for (const run of this.#drains.splice(0)) queueMicrotask(run);
  }

  onDrain(run: () => void): void {
    if (this.queuedBytes === 0) queueMicrotask(run);
    else this.#drains.push(run);
  }

  onStuck(delayMs: number, run: () => void): () => void {
    const cancel = whenStuck(this.#clock, () => this.#taken, delayMs, run);
    this.onClose(cancel);
    return cancel;
  }

  onClose(run: () => void): void {
    if (this.#isClosed) run();
    else this.#closes.push(run);
  }

  end(): void {
    this.#leave(SOCKET_END, "end");
  }

  cut(): void {
    this.#leave(SOCKET_CUT, "cut");
  }

  /** The other side has gone. */
  closed(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const run of [...this.#closes.splice(0), ...this.#drains.splice(0)]) run();
  }

  #leave(code: number, reason: string): void {
    if (this.#isClosed) return;
    try {
      this.#socket.close(code, reason);
    } finally {
      this.closed();
    }
  }
}

/** What a socket has kept of its reader. Undefined: it is no reader of ours, or has not begun. */
export function readerOf(socket: ObjectSocket): (BridgedPlace & KeptReader) | undefined {
  const kept = Object(socket.deserializeAttachment()) as Partial<Attachment>;
  // The platform has kept what `moved` gave it.
  return kept.hapax === "reader" ? (kept as Attachment) : undefined;
}
