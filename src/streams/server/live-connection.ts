/**
 * The connection of a live reader, of one stream or of several: its time, its end, and how much of it is queued.
 *
 *   - it ends with its identity, when the server stops, and after its time, which is spread so that readers do not come back together;
 *   - the room for what is read is kept until it has left, or the reader has gone;
 *   - a reader that does not take its bytes holds a bounded number of them, and is cut in the end.
 */

import { spreadMs } from "../../base/backoff.ts";
import { LIMITS } from "../../protocol/limits.ts";
import { encodeHeartbeat } from "../../protocol/sse.ts";
import type { Access } from "../access/access.ts";
import type { AnswerShare } from "./answer-budget.ts";
import type { LiveSink } from "./exchange.ts";
import type { ServerParts } from "./parts.ts";

export interface LiveConnectionOptions {
  readonly access: Pick<Access, "expiresAtMs" | "onEnd">;
  /** Called once, however it ends. */
  readonly onOver: () => void;
  /** Nothing is being read or sent: a comment line may go between. */
  readonly isIdle: () => boolean;
}

const HEARTBEAT = encodeHeartbeat();

export class LiveConnection {
  readonly #parts: ServerParts;
  readonly #sink: LiveSink;
  readonly #options: LiveConnectionOptions;
  readonly #cancels = new Set<() => void>();
  #share: AnswerShare | undefined;
  #isOver = false;
  #hasGone = false;
  #isStalled = false;

  constructor(parts: ServerParts, sink: LiveSink, options: LiveConnectionOptions) {
    this.#parts = parts;
    this.#sink = sink;
    this.#options = options;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  begin(): void {
    const { options, random, clock, drain } = this.#parts;
    const { access } = this.#options;
    this.#sink.onClose(() => {
      this.#hasGone = true;
      this.#share?.release();
      this.#stop();
    });
    const spread = spreadMs(options.sseSecondsMax * 1000, 0.05, random.unit());
    const end = (): void => {
      this.end();
    };
    this.#keepTime(Math.min(spread, Math.max(0, access.expiresAtMs - clock.nowMs())), end);
    this.#cancels.add(drain.onDrain(end));
    this.#cancels.add(access.onEnd(end));
  }

  #keepTime(lifeMs: number, end: () => void): void {
    const { bridge } = this.#sink;
    if (bridge !== undefined) {
      bridge.lives(lifeMs);
      return;
    }
    this.#after(lifeMs, end);
    this.#beat();
  }

  /** Keeps the room of what was read until it has left. */
  hold(share: AnswerShare): void {
    if (this.#hasGone) share.release();
    this.#share?.release(); // No more than `readerBufferBytes` of it can still be queued.
    this.#share = share;
    share.onCut(() => {
      this.cut();
    });
  }

  /** If too much is queued, nothing more should be written until `run` is called. */
  stallIfFull(run: () => void): boolean {
    const { options } = this.#parts;
    if (this.#isStalled || this.#sink.queuedBytes <= options.readerBufferBytes) {
      return this.#isStalled;
    }
    this.#isStalled = true;
    const cancel = this.#sink.onStuck(options.readerStallMs, () => {
      this.cut();
    });
    this.#cancels.add(cancel);
    this.#sink.onDrain(() => {
      if (this.#isOver) return;
      this.#isStalled = false;
      this.#cancels.delete(cancel);
      cancel();
      run();
    });
    return true;
  }

  /** Ends the answer behind what is queued. */
  end(): void {
    if (this.#isOver) return;
    this.#stop();
    this.#sink.end();
  }

  /** Breaks the answer off, also if its end is still queued. */
  cut(): void {
    this.#stop();
    this.#sink.cut();
  }

  #beat(): void {
    this.#after(LIMITS.sseHeartbeatMs, () => {
      if (!this.#isStalled && this.#options.isIdle()) this.#sink.write(HEARTBEAT);
      this.#beat();
    });
  }

  #after(delayMs: number, run: () => void): void {
    const cancel = this.#parts.clock.after(delayMs, () => {
      this.#cancels.delete(cancel);
      run();
    });
    this.#cancels.add(cancel);
  }

  #stop(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    for (const cancel of this.#cancels) cancel();
    this.#cancels.clear();
    this.#options.onOver();
  }
}
