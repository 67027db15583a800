/**
 * The strategy of a pipeline whose effects are in a database: the position is kept there, and moves in the transaction
 * of the effects. Port: sink.ts.
 *
 *   PK1  the position in the sink is what counts; the offset that is committed to the server only follows it;
 *   PK2  a position is `<offset>`, or `<offset>+<n>`: n records after it. So a transaction has at most `batchMax`
 *        records, and a record that fails is alone in its own;
 *   PK3  nothing is done in the name of a token that the sink has seen a greater one than;
 *   PK4  a failure while the sink does not answer is nobody's fault: it counts against no record.
 */

import { HapaxError, isHapaxError } from "../errors.ts";
import type { Sink, SinkPlace } from "../sink.ts";
import type { LeasedBatch } from "./held.ts";
import { Attempts, type Outcome, type Page, type Span, throwIfOver } from "./pipeline-attempts.ts";
import {
  deadLetterOf,
  Overtaken,
  type PipelineParts,
  PerLease,
  putAside,
  type Strategy,
} from "./pipeline-parts.ts";

/** The position of one lease, as the sink last said. */
interface Place {
  readonly place: SinkPlace;
  readonly token: number;
  position: string | undefined;
}

/** Records of a page, and the safe point after them. */
interface Portion<T> extends Page<T> {
  readonly nextOffset: string;
}

/** What has failed; the index is that of the record, or of the first one of a batch, if it is known. */
type Failed = Extract<Outcome<never>, { kind: "failed" }> & { readonly index: number | undefined };

export class SinkStrategy<T, Tx> implements Strategy<T> {
  readonly #parts: PipelineParts<T, Tx>;
  readonly #sink: Sink<Tx>;
  readonly #attempts: Attempts<T, Tx, never>;
  readonly #places = new PerLease<Place>();

  constructor(parts: PipelineParts<T, Tx>, sink: Sink<Tx>) {
    this.#parts = parts;
    this.#sink = sink;
    const resolve = (): never => {
      throw new HapaxError("invalid_settings", "with a database as sink there are no outputs");
    };
    this.#attempts = new Attempts(parts.settings, resolve, parts.stop, parts.counters);
  }

  prepare(): Promise<void> {
    return this.#sink.prepare();
  }

  async process(batch: LeasedBatch<T>): Promise<void> {
    const { stream, signal } = batch;
    const { token } = batch.lease;
    const held = await this.#places.get(batch, async () => {
      const place = { pipeline: this.#parts.settings.group, stream };
      const { position } = await this.#take(place, token, signal);
      return { place, token, position };
    });
    for await (const portion of this.#portions(batch, held)) {
      while (countIn(portion, held.position) < portion.records.length) {
        await this.#advance(portion, held);
      }
    }
    // PK1
    if (!batch.isSettled) await batch.commit();
  }

  /** What of the batch is not in the sink yet: all of it, nothing, or what is read again from the position on. */
  async *#portions(
    batch: LeasedBatch<T>,
    held: Place,
  ): AsyncGenerator<Portion<T>, void, undefined> {
    const { stream, signal, nextOffset } = batch;
    const facts = { stream, signal, state: undefined };
    const from = offsetOf(held.position) ?? batch.offset;
    if (from === batch.offset) {
      yield { ...facts, offset: from, records: batch.records, nextOffset };
      return;
    }
    if (from >= nextOffset) return;
    const reading = this.#parts.hapax.stream(stream).read<T>({ from, signal });
    for await (const page of reading.pages()) {
      yield { ...facts, offset: page.offset, records: page.records, nextOffset: page.nextOffset };
      if (page.nextOffset >= nextOffset) return;
    }
  }

  /** One transaction of the sink, with as many records as it may have; or what is to be done about a record. */
  async #advance(portion: Portion<T>, held: Place): Promise<void> {
    const from = countIn(portion, held.position);
    const count = Math.min(this.#parts.settings.batchMax, portion.records.length - from);
    const failed = await this.#try(portion, held, { from, count }, 1);
    if (failed === undefined) return;
    if (count === 1 || this.#parts.settings.batch !== undefined) {
      await this.#persist(portion, held, { from, count }, failed);
      return;
    }
    // PK2: those before it go without it, then it is alone. If it is not known which one it is, each is alone.
    const before = failed.index === undefined ? 0 : failed.index - from;
    if (before > 0) {
      const others = { from, count: before };
      if ((await this.#try(portion, held, others, 1)) !== undefined) return;
    }
    const alone = { from: from + before, count: 1 };
    const first = failed.index === undefined ? await this.#try(portion, held, alone, 1) : failed;
    if (first !== undefined) await this.#persist(portion, held, alone, first);
  }

  /** Tries the same records until they succeed or are given up. */
  async #persist(portion: Portion<T>, held: Place, span: Span, first: Failed): Promise<void> {
    const { attemptsMax } = this.#parts.settings.retry;
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
    // Of records that failed together each is tried alone, once.
    for (let from = span.from; from < span.from + span.count; from += 1) {
      const alone = await this.#try(portion, held, { from, count: 1 }, 1);
      if (alone !== undefined) await this.#giveUp(portion, held, from, alone);
    }
  }

  /** The letter first, under the id of the record, then the position: done again, the letter changes nothing. */
  async #giveUp(portion: Portion<T>, held: Place, index: number, failed: Failed): Promise<void> {
    const letter = deadLetterOf(this.#parts.settings, portion, index, failed);
    await putAside(this.#parts, letter, portion.signal);
    const to = positionAt(portion, index + 1);
    const error = await this.#transaction(portion, held, to, () => undefined);
    if (error !== undefined) throw error.cause;
    this.#tell(portion, index + 1, 1, 1);
  }

  /** One transaction with these records. Answers what has failed; then nothing of them is stored. */
  async #try(
    portion: Portion<T>,
    held: Place,
    { from, count }: Span,
    attempt: number,
  ): Promise<Failed | undefined> {
    const step = this.#parts.settings.batch === undefined ? 1 : count;
    let failed: Failed | undefined;
    const work = async (tx: Tx): Promise<void> => {
      failed = undefined;
      throwIfOver(portion.signal);
      for (let index = from; index < from + count; index += step) {
        const span = { from: index, count: step };
        const outcome = await this.#attempts.once(portion, span, attempt, tx);
        if (outcome.kind === "done") continue;
        failed = { ...outcome, index };
        throw new RolledBack();
      }
    };
    const to = positionAt(portion, from + count);
    const error = await this.#transaction(portion, held, to, work);
    if (error === undefined) {
      this.#tell(portion, from + count, count, 0);
      return undefined;
    }
    // The sink itself has refused: a condition that it looks at when it commits.
    return failed ?? { kind: "failed", error: error.cause, attempts: attempt, index: undefined };
  }

  /** Nothing if the position has moved; else why not. Waits for a sink that is away. */
  async #transaction(
    portion: Portion<T>,
    held: Place,
    to: string,
    work: (tx: Tx) => void | Promise<void>,
  ): Promise<{ readonly cause: unknown } | undefined> {
    const { place, token } = held;
    const before = held.position;
    for (;;) {
      try {
        await this.#sink.move(place, token, { from: before, to }, work);
        held.position = to;
        return undefined;
      } catch (cause) {
        if (isHapaxError(cause, "invalid_settings")) throw cause;
        // The outcome may be unknown: the sink tells.
        const { position, wasAway } = await this.#take(place, token, portion.signal);
        held.position = position;
        if (position === to) return undefined;
        if (position !== before) throw new Overtaken(`${place.stream} was moved by another`);
        // PK4
        if (!wasAway) return { cause };
      }
    }
  }

  /** PK3. Where the sink is; waits for one that does not answer, within the patience. */
  async #take(
    place: SinkPlace,
    token: number,
    signal: AbortSignal,
  ): Promise<{ readonly position: string | undefined; readonly wasAway: boolean }> {
    const { clock, patienceMs, onRetry } = this.#parts.settings;
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
    const offset = positionAt(portion, count);
    this.#parts.advance({ stream, offset, records, outputs: 0, deadLetters });
  }
}

/** Thrown through the sink's transaction, so that it rolls back. */
class RolledBack extends Error {
  override readonly name = "RolledBack";
}

function offsetOf(position: string | undefined): string | undefined {
  return position?.split("+", 1)[0];
}

/** How many records of the portion a position has behind it. */
function countIn<T>(portion: Portion<T>, position: string | undefined): number {
  if (position === undefined) return 0;
  const [offset, count = "0"] = position.split("+");
  if (offset === portion.offset) return Number(count);
  return (offset ?? "") >= portion.nextOffset ? portion.records.length : 0;
}

/** PK2 */
function positionAt<T>({ offset, nextOffset, records }: Portion<T>, count: number): string {
  return count >= records.length ? nextOffset : `${offset}+${String(count)}`;
}
