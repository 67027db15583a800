/**
 * Waiting for new events: a pause, cut short by NOTIFY if the user gives a connection for it. A pooler that gives
 * connections to transactions has no LISTEN: then leave `notify` out, or give it a connection past the pooler.
 *
 *   - a notification only ends a pause early: one that is lost, late or too many changes nothing else.
 */

import { type Clock, waitingClock } from "../../base/clock.ts";
import { OUTBOX_CHANNEL } from "./postgres-outbox-tables.ts";

/** Listens on the channel `hapax_outbox`. Resolves to a function that stops. */
export interface OutboxNotify {
  listen(onNotify: () => void): Promise<() => Promise<void>>;
}

/** A connection of `pg` outside of any pool. */
export interface PgListenClient {
  connect(): Promise<unknown>;
  query(text: string): Promise<unknown>;
  end(): Promise<void>;
  on(event: "notification" | "end", listener: () => void): unknown;
  on(event: "error", listener: (error: Error) => void): unknown;
}

interface Listening {
  /** Resolves when it listens. */
  readonly stop: Promise<() => Promise<void>>;
  readonly wakes: Set<() => void>;
  /** A notification came while no relay waited. */
  isMissed: boolean;
}

/** By the user's object: the logs of a ledger, and those inside its transactions, share one connection. */
const listenings = new WeakMap<OutboxNotify, Listening>();

/**
 * Resolves after so long, when something was notified, or when the signal aborts: then it listens no more. Rejects if
 * it cannot listen.
 */
export async function waitForHint(
  delayMs: number,
  signal: AbortSignal,
  clock: Clock,
  notify: OutboxNotify | undefined,
): Promise<void> {
  if (signal.aborted) return;
  if (notify === undefined) {
    await startPause(delayMs, signal, clock, new Set()).over;
    return;
  }
  const listening = listenTo(notify);
  if (listening.isMissed) {
    listening.isMissed = false;
    return;
  }
  const pause = startPause(delayMs, signal, clock, listening.wakes);
  try {
    await Promise.race([pause.over, failureOf(listening)]);
  } finally {
    pause.end();
  }
  if (signal.aborted) await stopListening(notify, listening);
}

interface Pause {
  readonly over: Promise<void>;
  end(): void;
}

function startPause(
  delayMs: number,
  signal: AbortSignal,
  clock: Clock,
  wakes: Set<() => void>,
): Pause {
  let end: () => void = () => undefined;
  const over = new Promise<void>((resolve) => {
    end = () => {
      cancel();
      wakes.delete(end);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const cancel = clock.after(delayMs, end);
    wakes.add(end);
    signal.addEventListener("abort", end);
  });
  return { over, end };
}

function listenTo(notify: OutboxNotify): Listening {
  const known = listenings.get(notify);
  if (known !== undefined) return known;
  const wakes = new Set<() => void>();
  const stop = notify.listen(() => {
    if (wakes.size === 0) listening.isMissed = true;
    for (const wake of wakes) wake();
  });
  const listening: Listening = { stop, wakes, isMissed: false };
  listenings.set(notify, listening);
  // The next pause tries again; a pause that waits now rejects by `failureOf`.
  stop.catch(() => listenings.delete(notify));
  return listening;
}

/** Never resolves. */
async function failureOf({ stop }: Listening): Promise<never> {
  await stop;
  return new Promise(() => undefined);
}

async function stopListening(notify: OutboxNotify, listening: Listening): Promise<void> {
  if (listening.wakes.size > 0 || listenings.get(notify) !== listening) return;
  listenings.delete(notify);
  const stop = await listening.stop;
  await stop();
}

/** Pauses between attempts to connect again. */
const RECONNECT_MIN_MS = 100;
const RECONNECT_MAX_MS = 10_000;

/**
 * Listens over a connection of `pg` of its own, and connects again when the connection is lost. Relays go on without it
 * meanwhile.
 *
 * ```ts
 * import pg from "pg";
 * import { pgListener, postgresLedger } from "hapax/ledgers/postgres";
 * import { createOutbox, createRelay, functionPublisher } from "hapax/outbox";
 *
 * const pool = new pg.Pool(); // Reads PGHOST, PGUSER and PGDATABASE.
 * const notify = pgListener(() => new pg.Client());
 * const ledger = postgresLedger(pool, { schema: "notified", outbox: { way: "log", notify } });
 * await ledger.migrate();
 *
 * const topics: string[] = [];
 * const publisher = functionPublisher(async ({ topic }) => void topics.push(topic));
 * const relay = createRelay(ledger, publisher, { pollMs: 60_000 }); // The hint comes first.
 * const running = relay.run();
 * await ledger.transaction((tx) => createOutbox(ledger).add(tx, { topic: "orders", payload: 1 }));
 * while (topics.length === 0) await new Promise((resolve) => setTimeout(resolve, 10));
 * await relay.stop();
 * await running;
 * console.assert(topics.join() === "orders");
 * await pool.end();
 * ```
 */
export function pgListener(
  connect: () => PgListenClient,
  options: { readonly onError?: (error: Error) => void; readonly clock?: Clock } = {},
): OutboxNotify {
  const { onError = () => undefined, clock = waitingClock } = options;
  return {
    listen(onNotify) {
      const listener = new PgListener(connect, onNotify, onError, clock);
      listener.start();
      return Promise.resolve(() => listener.stop());
    },
  };
}

class PgListener {
  readonly #connect: () => PgListenClient;
  readonly #onNotify: () => void;
  readonly #onError: (error: Error) => void;
  readonly #clock: Clock;
  #isStopped = false;
  #failures = 0;
  #cancelPause: () => void = () => undefined;
  /** Ends when the connection of this moment is closed. */
  #running: Promise<void> = Promise.resolve();
  #close: () => void = () => undefined;

  constructor(
    connect: () => PgListenClient,
    onNotify: () => void,
    onError: (error: Error) => void,
    clock: Clock,
  ) {
    this.#connect = connect;
    this.#onNotify = onNotify;
    this.#onError = onError;
    this.#clock = clock;
  }

  start(): void {
    this.#running = this.#run().then(() => {
      this.#again();
    });
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#cancelPause();
    this.#close();
    await this.#running;
  }

  #again(): void {
    if (this.#isStopped) return;
    const delayMs = Math.min(RECONNECT_MIN_MS * 2 ** this.#failures, RECONNECT_MAX_MS);
    this.#failures = Math.min(this.#failures + 1, 30);
    this.#cancelPause = this.#clock.after(delayMs, () => {
      this.start();
    });
  }

  /** One connection, until it is lost or stopped. Never rejects. */
  async #run(): Promise<void> {
    let client: PgListenClient | undefined;
    try {
      const made = this.#connect();
      client = made;
      const closed = new Promise<void>((resolve) => {
        this.#close = resolve;
        made.on("notification", this.#onNotify);
        made.on("end", resolve);
        made.on("error", (error) => {
          this.#onError(error);
          resolve();
        });
      });
      await made.connect();
      await made.query(`LISTEN ${OUTBOX_CHANNEL}`);
      this.#failures = 0;
      // A notification may have come while no connection listened.
      this.#onNotify();
      await closed;
    } catch (error) {
      this.#tell(error);
    }
    try {
      await client?.end();
    } catch (error) {
      this.#tell(error);
    }
  }

  #tell(error: unknown): void {
    this.#onError(error instanceof Error ? error : new Error(String(error)));
  }
}
