/** Faults of pipelines: names that change, records that are lost or put aside for nothing, and ends that do not come. */

import type { Fault } from "./faults.ts";

const OUTAGES = "test/processing/pipeline-outages.test.ts";
const POISON = "test/processing/pipeline-poison.test.ts";
const ENDS = "test/processing/pipeline-ends.test.ts";
const IDENTITY = "test/processing/pipeline-identity.test.ts";
const SIGNALS = "test/processing/pipeline-signals.test.ts";

export const pipelineRecordFaults: readonly Fault[] = [
  {
    name: "an id names a place in a page, and not the record",
    guarantee: "G24",
    file: "src/client/processing/pipeline-attempts.ts",
    find: "    return recordId(this.#options.group, page, page.places.offsetAt(index));",
    replace:
      "    return recordId(this.#options.group, page, `${page.places.offsetAt(0)}/${String(index)}`);",
    caughtBy: {
      file: IDENTITY,
      test: "after a reset every output has the id that it had, however the pages are cut",
    },
  },
  {
    name: "a connection that is lost is the failure of a record",
    guarantee: "G24",
    file: "src/toolkit/databases/postgres.ts",
    find: "      if (broken !== undefined) noteLost(error);",
    replace: "        if (broken?.name === '') noteLost(error);",
    caughtBy: {
      file: OUTAGES,
      test: "one dropped connection puts no record aside, with one attempt for each",
    },
  },
  {
    name: "the position of a dead letter is moved once, and no more",
    guarantee: "G24",
    file: "src/client/processing/pipeline-sink.ts",
    find: "      if (clock.steadyMs() - sinceMs >= patienceMs) throw moved.cause;",
    replace: "      if (clock.steadyMs() - sinceMs <= patienceMs) throw moved.cause;",
    caughtBy: {
      file: OUTAGES,
      test: "a connection that is lost while the position of a dead letter moves is waited for",
    },
  },
  {
    name: "a sink that is away at the start ends the pipeline",
    guarantee: "G24",
    file: "src/client/processing/pipeline.ts",
    find: "    if (error instanceof Overtaken || error instanceof Away) return true;",
    replace: "    if (error instanceof Overtaken) return true;",
    caughtBy: {
      file: OUTAGES,
      test: "a database that is away at the start is waited for",
    },
  },
  {
    name: "the digits of a dead letter are lost",
    guarantee: "G24",
    file: "src/client/processing/dead-letter.ts",
    find: "    if (recordText !== undefined) return new JsonText(recordText);",
    replace: "    if (recordText !== undefined) return JSON.parse(recordText);",
    caughtBy: {
      file: POISON,
      test: "a record is put aside and replayed with every digit",
    },
  },
  {
    name: "an output that no stream can hold fails its transaction, and not its record",
    guarantee: "G24",
    file: "src/client/processing/pipeline-server.ts",
    find: "        else if (!plan.hasLetter) plan.misfit = { error };\n",
    replace: "",
    caughtBy: {
      file: POISON,
      test: "a record that gives more than a transaction can hold is put aside alone",
    },
  },
  {
    name: "a stopped pipeline finishes its page",
    guarantee: "G24",
    file: "src/client/processing/pipeline-bounds.ts",
    find: "  return stop.aborted || batch.isAskedBack;",
    replace: "  return (stop.aborted && batch.isAskedBack) || batch.isAskedBack;",
    caughtBy: {
      file: ENDS,
      test: "the end comes after the record at hand, and what is through is committed",
    },
  },
  {
    name: "a stream that is asked back is handed over after its page",
    guarantee: "G23",
    file: "src/client/processing/pipeline-bounds.ts",
    find: "  return stop.aborted || batch.isAskedBack;",
    replace: "  return stop.aborted || (stop.aborted && batch.isAskedBack);",
    caughtBy: {
      file: ENDS,
      test: "a stream that is asked back is handed over after the transaction at hand, and not after a page",
    },
  },
  {
    name: "a function that does not end hides the failure of another",
    guarantee: "G24",
    file: "src/client/processing/consumer.ts",
    find: "    await Promise.race([Promise.all(workers), overdue.promise]);",
    replace:
      "    await Promise.all([Promise.all(workers), Promise.race([workers[0], overdue.promise])]);",
    caughtBy: {
      file: ENDS,
      test: "hides no failure of another stream, and keeps no lease",
    },
  },
  {
    name: "a value that replaces another counts twice",
    guarantee: "G24",
    file: "src/client/processing/state.ts",
    find: "this.#chars.attempt + charsOf(key, text) - charsOf(key, this.#text(key));",
    replace: "this.#chars.attempt + charsOf(key, text);",
    caughtBy: {
      file: "src/client/processing/state-size.test.ts",
      test: "a value that replaces another counts once",
    },
  },
  {
    name: "a full database puts records aside",
    guarantee: "G24",
    file: "src/toolkit/databases/outage.ts",
    find: "|| FULL_WORDS.test(words))",
    replace: "|| (FULL_WORDS.test(words) && PASSING_WORDS.test(words)))",
    caughtBy: {
      file: OUTAGES,
      test: "a database without room is waited for, and puts no record aside",
    },
  },
  {
    name: "an event has fewer bytes than were stored",
    guarantee: "G24",
    file: "src/protocol/sse.ts",
    find: "  return payload[at + 1] === LF ? crLf : 1;",
    replace: "  return crLf > 0 && payload[at + 1] === LF ? 2 : 1;",
    caughtBy: {
      file: "test/processing/places.test.ts",
      test: "a page, a long-poll and an event give the same offset for a record, from wherever they are read",
    },
  },
  {
    name: "a lease that begins inside an append begins with the append",
    guarantee: "G24",
    file: "src/client/processing/sources.ts",
    find: "      yield isFirst ? fromOffset(batch, from) : batch;",
    replace: '      yield isFirst && from === "" ? fromOffset(batch, from) : batch;',
    caughtBy: {
      file: ENDS,
      test: "the end comes after the record at hand, and what is through is committed",
    },
  },
  {
    name: "a sink counts the places of records by bytes that the server has added",
    guarantee: "G24",
    file: "src/client/processing/stored.ts",
    find: "?state-offsets=false`",
    replace: "?`",
    caughtBy: {
      file: "test/processing/stored.test.ts",
      test: "G24 a sink that is ahead of its group leaves out no record",
    },
  },
  {
    name: "a function that never waits hides the end from its pipeline",
    guarantee: "G24",
    file: "src/client/processing/pipeline-bounds.ts",
    find: "if (clock.steadyMs() - turnedMs < TURN_MS) return undefined;",
    replace: "if (clock.steadyMs() - turnedMs < Infinity * TURN_MS) return undefined;",
    caughtBy: {
      file: SIGNALS,
      test: "SIGTERM ends a busy worker after the current record, and what it has processed is stored",
    },
  },
  {
    name: "the records of a batch that failed are all tried alone, although the pipeline must end",
    guarantee: "G24",
    file: "src/client/processing/pipeline-server.ts",
    find: "if (tried === span.count || bounds.isFull(tried)) return tried;",
    replace: "if (tried === span.count) return tried;",
    caughtBy: {
      file: ENDS,
      test: "does not hold up the end while its records are tried alone",
    },
  },
  {
    name: "the records of a batch that a database refused are all tried alone, although the pipeline must end",
    guarantee: "G24",
    file: "src/client/processing/pipeline-sink.ts",
    find: "      if (portion.isEnding()) return;\n",
    replace: "",
    caughtBy: {
      file: ENDS,
      test: "does not hold up the end while its records are tried alone",
    },
  },
  {
    name: "records whose outputs a slow sink has not stored are committed",
    guarantee: "G24",
    file: "src/client/processing/pipeline-identity.ts",
    find: "return incomplete === -1 ? counts.length : incomplete;",
    replace: "return incomplete === 0 ? 0 : counts.length;",
    caughtBy: {
      file: ENDS,
      test: "a slow sink with ids holds up the end for a second, and what it has stored is committed",
    },
  },
];
