/**
 * The strategy of a pipeline whose effects are in a database: the position is kept there, and moves in the transaction
 * of the effects. Port: sink.ts.
 *
 *   - the position in the sink counts; the offset that is committed to the server only follows it;
 *   - a position is `<offset>/<life>`, or `<offset>+<n>/<life>`: n records after it. So a transaction has at most
 *     `batchMax` records, and a record that fails is alone in its own;
 *   - a position counts for the life of the stream that it names. A stream that was created anew at the path is
 *     processed from its beginning; one whose tail went back is refused, and so is a server that was restored, until
 *     the program accepts it;
 *   - a token does nothing after the sink has seen a greater one;
 *   - a failure of the sink itself counts against no record: one that it reports as its own, and any while it does
 *     not answer. Only a record that loses its connection again and again, while the sink answers other calls, counts as
 *     the cause.
 */

import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { splitLife, isOtherIncarnation } from "../../base/incarnation.ts";
import { serverRestored } from "./restored.ts";
import type { Sink, SinkPlace } from "./sink.ts";
import type { LeasedBatch } from "./held.ts";
import { fromOffset, Places } from "./places.ts";
import {
  Attempts,
  type SpanOutcome,
  type PipelinePage,
  type Span,
  throwIfOver,
} from "./pipeline-attempts.ts";
import { beginPortion, isEnding, type PortionBounds, prepareSink } from "./pipeline-bounds.ts";
import {
  deadLetterOf,
  Overtaken,
  type PipelineParts,
  PerLease,
  putAside,
  type Strategy,
} from "./pipeline-parts.ts";
import { readStored } from "./stored.ts";

/** After so many lost transactions in a row, at a sink that answers, the record is the cause. */
const LOSSES_MAX = 10;

/** The position of one lease, as the sink last returned it. */
interface LeasePlace {
  readonly place: SinkPlace;
  readonly token: number;
  position: string | undefined;
}

/** The result of a transaction: how many records of the portion are before the position now, or the error. */
type Moved = { readonly behind: number } | { readonly cause: unknown };

/** Records of a page, and the safe point after them. */
interface Portion<T> extends PipelinePage<T> {
  readonly nextOffset: string;
  /** Begins a transaction. */
  readonly begin: () => PortionBounds;
  /** Returns whether this pipeline must stop processing the stream. */
  readonly isEnding: () => boolean;
}

/** A failure. The index is that of the record, or of the first one of a batch, if it is known. */
type Failed = Extract<SpanOutcome<never>, { kind: "failed" }> & {
  readonly index: number | undefined;
};

export class SinkStrategy<T, Tx> implements Strategy<T> {
  readonly #parts: PipelineParts<T, Tx>;
  readonly #sink: Sink<Tx>;
  readonly #attempts: Attempts<T, Tx, never>;
  readonly #places = new PerLease<LeasePlace>();

  constructor(parts: PipelineParts<T, Tx>, sink: Sink<Tx>) {
    this.#parts = parts;
    this.#sink = sink;
    const resolve = (): never => {
      throw new HapaxError("invalid_options", "with a database as sink there are no outputs");
    };
    this.#attempts = new Attempts(parts.options, resolve, parts.stop, parts.counters);
  }

  prepare(): Promise<void> {
    return prepareSink(() => this.#sink.prepare(), this.#parts.stop);
  }

  async process(batch: LeasedBatch<T>): Promise<void> {
    const { stream, signal } = batch;
    const { token } = batch.lease;
    const held = await this.#places.get(batch, async () => {
      const place = { pipeline: this.#parts.options.group, stream };
      const { position } = await this.#take(place, token, signal);
      this.#requireIncarnation(position, batch);
      await this.#requireReached(batch, position);
      return { place, token, position };
    });
    for await (const portion of this.#portions(batch, held)) {
      while (countIn(portion, held.position) < portion.records.length) {
        if (isEnding(this.#parts, batch)) {
          batch.giveBack();
          return;
        }
        await this.#advance(portion, held);
      }
    }
    if (!batch.isSettled) await batch.commit();
  }

  /** Refuses a position of before a restore, unless the program has accepted that restore. */
  #requireIncarnation(position: string | undefined, { stream, life }: LeasedBatch<T>): void {
    const [place = "", named] = position?.split("/") ?? [];
    if (named === undefined || !isOtherIncarnation(named, life)) return;
    const [, incarnation] = splitLife(life);
    if (incarnation === this.#parts.options.acceptRestored) return;
    const { code, message } = serverRestored(stream, named, life);
    const next = `restore the database of the sink to that time too, or accept it: acceptRestored: "${incarnation}"`;
    throw new HapaxError(code, `${message}. The sink is at ${place}: ${next}`);
  }

  /** Refuses a stream that ends before the position of the sink: its new records would be skipped. */
  async #requireReached(batch: LeasedBatch<T>, position: string | undefined): Promise<void> {
    const { stream, life, nextOffset, signal } = batch;
    const [at = ""] = placeOf(position, life);
    if (at <= nextOffset) return;
    const { offset } = await this.#parts.hapax.stream(stream).head({ signal });
    if (at <= offset) return;
    const words = `the sink is at ${at} of ${stream}, which ends at ${offset}: its data was restored from an earlier copy`;
    throw new HapaxError(
      "offset_beyond_tail",
      `${words}. Restore the database of the sink to that time too.`,
    );
  }

  /** Yields the records of the batch that are not in the sink yet: all, none, or those after the position, read again. */
  async *#portions(
    batch: LeasedBatch<T>,
    held: LeasePlace,
  ): AsyncGenerator<Portion<T>, void, undefined> {
    const { stream, life, signal, nextOffset } = batch;
    const begin = (): PortionBounds => beginPortion(this.#parts, batch);
    const isOver = (): boolean => isEnding(this.#parts, batch);
    const facts = { stream, life, signal, begin, isEnding: isOver, state: undefined };
    const [from = batch.offset] = placeOf(held.position, life);
    if (from === batch.offset) {
      const { records } = batch;
      yield { ...facts, offset: from, records, nextOffset, places: new Places(batch) };
      return;
    }
    if (from >= nextOffset) return;
    const options = { from: `${from}/${life}`, signal };
    const reading = readStored<T>(this.#parts.hapax, stream, options);
    for await (const whole of reading.pages()) {
      const page = fromOffset(whole, from);
      const { offset, records } = page;
      const places = new Places(page);
      yield { ...facts, offset, records, nextOffset: page.nextOffset, places };
      if (page.nextOffset >= nextOffset) return;
    }
  }

  /** Makes one transaction of the sink, with as many records as it may have. Handles a record that fails. */
  async #advance(portion: Portion<T>, held: LeasePlace): Promise<void> {
    const from = countIn(portion, held.position);
    const count = Math.min(this.#parts.options.batchMax, portion.records.length - from);
    const failed = await this.#try(portion, held, { from, count }, 1);
    if (failed === undefined) return;
    if (count === 1 || this.#parts.options.batch !== undefined) {
      await this.#persist(portion, held, { from, count }, failed);
      return;
    }
    // The records before it go without it, then it goes alone. If the failed record is unknown, each goes alone.
    const before = failed.index === undefined ? 0 : failed.index - from;
    if (before > 0) {
      const others = { from, count: before };
      const isDone = (await this.#try(portion, held, others, 1)) === undefined;
      if (!isDone || countIn(portion, held.position) !== from + before) return;
    }
    const alone = { from: from + before, count: 1 };
    const first = failed.index === undefined ? await this.#try(portion, held, alone, 1) : failed;
    if (first !== undefined) await this.#persist(portion, held, alone, first);
  }

  /** Tries the same records until they succeed or are given up. */
  async #persist(portion: Portion<T>, held: LeasePlace, span: Span, first: Failed): Promise<void> {
    const { attemptsMax } = this.#parts.options.retry;
    let failed = first;
    for (let attempts = 1; attempts < attemptsMax; attempts += 1) {
      await this.#attempts.pause(attempts, portion.signal);
      const again = await this.#try(portion, held, span, attempts + 1);
      if (again === undefined) return;
      failed = again;
    }
    if (span.count === 1) {
      await this.#giveUp(portion, held, span.from, failed);
      return;
    }
    // Tries each of the records that failed together alone, once.
    for (let from = span.from; from < span.from + span.count; from += 1) {
      if (portion.isEnding()) return;
      const alone = await this.#try(portion, held, { from, count: 1 }, 1);
      if (alone !== undefined) await this.#giveUp(portion, held, from, alone);
    }
  }

  /** Stores the letter first, under the id of the record, then moves the position: a repeated letter changes nothing. */
  async #giveUp(
    portion: Portion<T>,
    held: LeasePlace,
    index: number,
    failed: Failed,
  ): Promise<void> {
    const { clock, patienceMs, onRetry } = this.#parts.options;
    const letter = deadLetterOf(this.#parts.options, portion, index, failed);
    await putAside(this.#parts, letter, portion.signal);
    const sinceMs = clock.steadyMs();
    for (let failures = 1; ; failures += 1) {
      const moved = await this.#transaction(portion, held, () => index + 1);
      if (!("cause" in moved)) break;
      // This transaction has nothing of the record.
      if (clock.steadyMs() - sinceMs >= patienceMs) throw moved.cause;
      onRetry?.(moved.cause);
      await this.#attempts.pause(failures, portion.signal);
    }
    this.#tell(portion, index + 1, 1, 1);
  }

  /** Makes one transaction with these records, or the first of them. Returns the failure; then nothing is stored. */
  async #try(
    portion: Portion<T>,
    held: LeasePlace,
    { from, count }: Span,
    attempt: number,
  ): Promise<Failed | undefined> {
    const step = this.#parts.options.batch === undefined ? 1 : count;
    let failed: Failed | undefined;
    const work = async (tx: Tx): Promise<number> => {
      failed = undefined;
      throwIfOver(portion.signal);
      const bounds = portion.begin();
      for (let index = from; ; index += step) {
        const span = { from: index, count: step };
        const outcome = await this.#attempts.once(portion, span, attempt, tx);
        const behind = index + step;
        if (outcome.kind === "failed") {
          failed = { ...outcome, index };
          throw new RolledBack("a record has failed", { cause: outcome.error });
        }
        const turn = bounds.turn();
        if (turn !== undefined) {
          await turn;
          throwIfOver(portion.signal);
        }
        if (behind >= from + count || bounds.isFull(behind - from)) return behind;
      }
    };
    const moved = await this.#transaction(portion, held, work);
    if (!("cause" in moved)) {
      this.#tell(portion, moved.behind, moved.behind - from, 0);
      return undefined;
    }
    // The sink itself has refused, for example by a condition that it checks when it commits.
    return failed ?? { kind: "failed", error: moved.cause, attempts: attempt, index: undefined };
  }

  /** Moves the position behind as many records as `work` returns. Waits for a sink that is away. */
  async #transaction(
    portion: Portion<T>,
    held: LeasePlace,
    work: (tx: Tx) => number | Promise<number>,
  ): Promise<Moved> {
    const { clock, patienceMs, onRetry } = this.#parts.options;
    const { place, token } = held;
    const before = held.position;
    const sinceMs = clock.steadyMs();
    for (let losses = 1; ;) {
      let behind = 0;
      let to: string | undefined;
      try {
        await this.#sink.move(place, token, before, async (tx) => {
          behind = await work(tx);
          to = positionAt(portion, behind);
          return to;
        });
        held.position = to;
        return { behind };
      } catch (cause) {
        if (isHapaxError(cause, "invalid_options")) throw cause;
        // The outcome may be unknown: the position in the sink shows it.
        const { position, wasAway } = await this.#take(place, token, portion.signal);
        held.position = position;
        if (to !== undefined && position === to) return { behind };
        if (position !== before) throw new Overtaken(`${place.stream} was moved by another`);
        if (wasAway) continue;
        if (!isHapaxError(cause) || cause.retry === "never") return { cause };
        if (cause.code === "unreachable" && losses >= LOSSES_MAX) return { cause };
        if (clock.steadyMs() - sinceMs >= patienceMs) throw cause;
        onRetry?.(cause);
        await this.#attempts.pause(losses, portion.signal);
        losses += 1;
      }
    }
  }

  /** Returns the position of the sink. Waits for a sink that does not answer, within the patience. */
  async #take(
    place: SinkPlace,
    token: number,
    signal: AbortSignal,
  ): Promise<{ readonly position: string | undefined; readonly wasAway: boolean }> {
    const { clock, patienceMs, onRetry } = this.#parts.options;
    const sinceMs = clock.steadyMs();
    for (let failures = 0; ; failures += 1) {
      throwIfOver(signal);
      try {
        return { position: await this.#sink.take(place, token), wasAway: failures > 0 };
      } catch (error) {
        if (isHapaxError(error, "lease_lost")) {
          throw new Overtaken(error.message, { cause: error });
        }
        if (clock.steadyMs() - sinceMs >= patienceMs) throw error;
        onRetry?.(error);
        await this.#attempts.pause(failures + 1, signal);
      }
    }
  }

  #tell(portion: Portion<T>, count: number, records: number, deadLetters: number): void {
    const { stream } = portion;
    const offset = offsetAt(portion, count);
    this.#parts.advance({ stream, offset, records, outputs: 0, deadLetters });
  }
}

/** Thrown through the sink's transaction, so that it rolls back. */
class RolledBack extends Error {
  override readonly name = "RolledBack";
}

/** Returns the offset, and the count of records after it, if the position is of this life; else nothing. */
function placeOf(
  position: string | undefined,
  life: string,
): readonly [] | readonly [offset: string, count: number] {
  const [place = "", named] = position?.split("/") ?? [];
  // One of before a restore that the program has accepted is as good as one of now.
  if (named === undefined || (named !== life && !isOtherIncarnation(named, life))) return [];
  const [offset = "", count = "0"] = place.split("+");
  return [offset, Number(count)];
}

/** Returns how many records of the portion are before a position. */
function countIn<T>(portion: Portion<T>, position: string | undefined): number {
  const [offset = "", count = 0] = placeOf(position, portion.life);
  if (offset === portion.offset) return count;
  return offset >= portion.nextOffset ? portion.records.length : 0;
}

function positionAt<T>(portion: Portion<T>, count: number): string {
  return `${offsetAt(portion, count)}/${portion.life}`;
}

function offsetAt<T>({ offset, nextOffset, records }: Portion<T>, count: number): string {
  return count >= records.length ? nextOffset : `${offset}+${String(count)}`;
}
