/** Repeats reads whose connection was lost. A read changes nothing, so it may be repeated; a write is settled by its fence. */

import type { Clock } from "../../../base/clock.ts";
import { HapaxError } from "../../../base/errors.ts";
import { StatementRefused } from "./session.ts";
import type { ShardTables } from "./tables.ts";

/** Together some seconds: a restart of the server, or a failover that was ready. Then the reader gets an error. */
const ATTEMPTS_MAX = 12;
const PAUSE_MS = 50;
const PAUSE_MS_MAX = 1000;
/** SQLSTATE of refusals that pass: too many connections, deadlock, serialization, a server that starts or ends. */
const PASSING = /^(40|53[23]|55|57)/;

async function repeated<T>(clock: Clock, read: () => Promise<T>): Promise<T> {
  let pauseMs = PAUSE_MS;
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await read();
    } catch (error) {
      const isFinal =
        error instanceof HapaxError ||
        (error instanceof StatementRefused && !PASSING.test(error.state));
      if (isFinal || attempt === ATTEMPTS_MAX) throw error;
    }
    const waitMs = pauseMs;
    await new Promise<void>((resolve) => {
      clock.after(waitMs, resolve);
    });
    pauseMs = Math.min(PAUSE_MS_MAX, pauseMs * 2);
  }
}

/** The same tables, with reads that are repeated. */
export function withRetries(tables: ShardTables, clock: Clock): ShardTables {
  return {
    state: () => tables.state(),
    take: (epoch, owner) => tables.take(epoch, owner),
    release: (epoch, mark) => tables.release(epoch, mark),
    beat: (owner) => tables.beat(owner),
    write: (epoch, write) => tables.write(epoch, write),
    confirm: (epoch, write) => tables.confirm(epoch, write),
    look: (write, epoch) => tables.look(write, epoch),
    frames: (segment, from) => repeated(clock, () => tables.frames(segment, from)),
    read: (segment, position, length) => {
      return repeated(clock, () => tables.read(segment, position, length));
    },
    endOf: (segment) => repeated(clock, () => tables.endOf(segment)),
    segments: () => repeated(clock, () => tables.segments()),
    images: () => repeated(clock, () => tables.images()),
    imagePart: (image, part) => repeated(clock, () => tables.imagePart(image, part)),
    released: () => repeated(clock, () => tables.released()),
    sweep: (epoch) => tables.sweep(epoch),
  };
}
