/** The rules about one stream at a time, and about the outputs of pipelines. Labels: checker.ts. */

import type { Ordered } from "./checker-history.ts";
import {
  compareOrdered,
  type HistoryLedger,
  type LedgerRecord,
  type LedgerStream,
  NEVER,
  producerOf,
  tellRecord,
} from "./checker-ledger.ts";
import type { CheckerRule, ProblemLog } from "./checker-problems.ts";

/** A read → process → write pipeline: each record of the streams `from` gives records of the streams `to`. */
export interface PipelineShape {
  readonly from: readonly string[];
  readonly to: readonly string[];
  /** How many outputs an input has. Default: 1. */
  readonly outputsOf?: ((inputId: string) => number) | undefined;
}

const isLive = ({ outcome }: LedgerRecord): boolean => outcome === "ok" || outcome === "unknown";

function place({ stream, id, position, attempt }: LedgerRecord) {
  return {
    stream,
    id,
    ...(position < 0 ? {} : { position }),
    ...(attempt === undefined ? {} : { process: attempt.process, event: attempt.invokedAt }),
  };
}

/** Checks LC1, LC2 and LC3. */
export function checkPresence(ledger: HistoryLedger, log: ProblemLog): void {
  for (const { name, byId, order } of ledger.streams.values()) {
    for (const record of byId.values()) {
      if (record.outcome === "ok" && record.position < 0) {
        log.add(
          "lost",
          place(record),
          () => `${tellRecord(record)} was acknowledged and is not there`,
        );
      } else if (record.position >= 0 && !isLive(record)) {
        const why = record.outcome === "fail" ? "every attempt was refused" : "no attempt wrote it";
        log.add("invented", place(record), () => `${tellRecord(record)} is there, but ${why}`);
      }
    }
    for (const [position, record] of order.entries()) {
      if (record.position === position) continue;
      const where = { ...place(record), stream: name, position };
      log.add(
        "duplicated",
        where,
        () => `${tellRecord(record)} is there again at position ${position}`,
      );
    }
  }
}

/** Finds records that stand behind a record that began after their end. One pass. */
class Lane {
  #newest: LedgerRecord | undefined;
  #newestFirst = -1;

  /** Returns the record in front that should be behind, if there is one. */
  take(record: LedgerRecord, first: number, last: number): LedgerRecord | undefined {
    const wrong = last < this.#newestFirst ? this.#newest : undefined;
    if (first > this.#newestFirst) {
      this.#newestFirst = first;
      this.#newest = record;
    }
    return wrong;
  }
}

function laneOf(lanes: Map<string, Lane>, name: string): Lane {
  let lane = lanes.get(name);
  if (lane === undefined) lanes.set(name, (lane = new Lane()));
  return lane;
}

/** Checks LC4 within a stream, and LC10 for appends. */
export function checkOrder(ledger: HistoryLedger, log: ProblemLog): void {
  for (const stream of ledger.streams.values()) {
    checkOffsets(stream, log);
    const lanes = new Map<string, Lane>();
    const time = new Lane();
    const tell = (
      rule: CheckerRule,
      why: string,
      record: LedgerRecord,
      wrong?: LedgerRecord,
    ): void => {
      if (wrong === undefined) return;
      log.add(
        rule,
        place(record),
        () => `${tellRecord(record)} stands behind ${tellRecord(wrong)}, ${why}`,
      );
    };
    for (const [position, record] of stream.order.entries()) {
      const { attempt, firstNumber, lastNumber } = record;
      if (record.position !== position || attempt === undefined || !isLive(record)) continue;
      const producer = record.isOfOneProducer ? producerOf(attempt) : undefined;
      if (producer !== undefined) {
        // Its sequence holds a record's place from the first time that it was sent.
        const wrong = laneOf(lanes, `producer ${producer}`).take(record, firstNumber, firstNumber);
        tell("order", `which producer ${producer} asked for later`, record, wrong);
      }
      const key = record.isOfOneProcess ? record.written?.key : undefined;
      if (key !== undefined) {
        // Without an answer it may arrive at any time: only a producer's sequence promises more.
        const last = record.outcome === "ok" ? lastNumber : NEVER;
        const wrong = laneOf(lanes, `key ${attempt.process.length} ${attempt.process} ${key}`).take(
          record,
          firstNumber,
          last,
        );
        tell("order", `which was asked for later under the same key`, record, wrong);
      }
      const wrong = time.take(record, record.earliest, record.latest);
      tell(
        "time",
        `which began after it was known to be there (event ${record.latest})`,
        record,
        wrong,
      );
    }
  }
}

function checkOffsets({ name, found }: LedgerStream, log: ProblemLog): void {
  let before: Ordered | undefined;
  for (const [position, { id, offset }] of found.entries()) {
    if (offset === undefined) continue;
    const last = before;
    if (last !== undefined && compareOrdered(offset, last) < 0) {
      const where = { stream: name, id, position };
      log.add(
        "order",
        where,
        () => `record "${id}" of ${name} has offset ${offset} behind offset ${last}`,
      );
    }
    before = offset;
  }
}

/** Checks LC5, and LC4 from the inputs to the outputs. */
export function checkPipelines(
  ledger: HistoryLedger,
  pipelines: readonly PipelineShape[],
  log: ProblemLog,
): void {
  for (const pipeline of pipelines) {
    const outputCounts = new Map<LedgerRecord, number>();
    const newest = new Map<string, LedgerRecord>();
    for (const output of foundIn(ledger, pipeline.to)) {
      const of = output.written?.of;
      if (of === undefined) continue;
      const input = inputOf(ledger, pipeline.from, of);
      if (input === undefined) {
        log.add("once", place(output), () => {
          return `${tellRecord(output)} was made of "${of}", which is not in ${pipeline.from.join(", ")}`;
        });
        continue;
      }
      outputCounts.set(input, (outputCounts.get(input) ?? 0) + 1);
      checkKeyOrder(input, output, newest, log);
    }
    checkOutputs(ledger, pipeline, outputCounts, log);
  }
}

function inputOf(
  ledger: HistoryLedger,
  from: readonly string[],
  id: string,
): LedgerRecord | undefined {
  let input: LedgerRecord | undefined;
  for (const name of from) {
    const record = ledger.streams.get(name)?.byId.get(id);
    if (record === undefined || record.position < 0) continue;
    if (input !== undefined) {
      throw new Error(`"${id}" is an input both in ${input.stream} and in ${name}`);
    }
    input = record;
  }
  return input;
}

function* foundIn(ledger: HistoryLedger, names: readonly string[]): Generator<LedgerRecord> {
  for (const name of names) {
    const order = ledger.streams.get(name)?.order ?? [];
    for (const [position, record] of order.entries())
      if (record.position === position) yield record;
  }
}

function checkKeyOrder(
  input: LedgerRecord,
  output: LedgerRecord,
  newest: Map<string, LedgerRecord>,
  log: ProblemLog,
): void {
  const key = input.written?.key;
  if (key === undefined) return;
  const lane = JSON.stringify([input.stream, output.stream, key]);
  const before = newest.get(lane);
  if (before === undefined || before.position <= input.position) {
    newest.set(lane, input);
    return;
  }
  log.add(
    "order",
    place(output),
    () =>
      `${tellRecord(output)} was made of ${tellRecord(input)}, but stands behind the output of ${tellRecord(before)}`,
  );
}

function checkOutputs(
  ledger: HistoryLedger,
  { from, to, outputsOf }: PipelineShape,
  counts: ReadonlyMap<LedgerRecord, number>,
  log: ProblemLog,
): void {
  const wrong = new Map<string, LedgerRecord[]>();
  const inputs: LedgerRecord[] = [];
  for (const input of foundIn(ledger, from)) {
    if ((counts.get(input) ?? 0) === (outputsOf?.(input.id) ?? 1)) continue;
    inputs.push(input);
    wrong.set(input.id, []);
  }
  if (inputs.length === 0) return;
  for (const output of foundIn(ledger, to)) wrong.get(output.written?.of ?? "")?.push(output);
  for (const input of inputs) {
    const found = wrong.get(input.id) ?? [];
    log.add("once", place(input), () => {
      const list = found.map((output) => `\n    ${tellRecord(output)}`).join("");
      const expected = outputsOf?.(input.id) ?? 1;
      return `input ${tellRecord(input)} has ${found.length} of ${expected} outputs in ${to.join(", ")}${list}`;
    });
  }
}
