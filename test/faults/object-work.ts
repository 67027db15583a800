/** Faults of what Durable Objects do once: what would be lost, done twice, asked for never, or imported wrongly. */

import type { Fault } from "./faults.ts";

const ROOM = "src/toolkit/durable-object";
const RULES = "src/toolkit/rules";
const ONCE_TEST = "test/objects/exactly-once.test.ts";
const ALARMS_TEST = "test/objects/alarms.test.ts";
const ROUGH_TEST = "test/objects/rough.test.ts";
const THROWN = "G66 work that throws leaves nothing: no row, no event, no record";
const LOSSES =
  "G68 calls are lost, answered late or never, events are given up and tried again, senders die: once, in order";

export const objectWorkFaults: readonly Fault[] = [
  {
    name: "an event is emitted outside of the transaction",
    guarantee: "G66",
    file: `${ROOM}/steps.ts`,
    find: `const [id = ""] = this.ledger.sync(tx).add([newOutboxEvent(message)]);`,
    replace: `const [id = ""] = ["later"]; void this.ledger.inTurnSync((own) => this.ledger.sync(own).add([newOutboxEvent(message)]));`,
    caughtBy: { file: ONCE_TEST, test: THROWN },
  },
  {
    name: "an emitted event sets no alarm",
    guarantee: "G66",
    file: `${ROOM}/steps.ts`,
    find: `        this.#alarms.atLatest(OUTBOX_ALARM, this.#nowMs());\n`,
    replace: ``,
    caughtBy: { file: ONCE_TEST, test: THROWN },
  },
  {
    name: "an object keeps no record of its work",
    guarantee: "G66",
    file: `${ROOM}/process.ts`,
    find: `const write = doneWrite(job, attempts, data, "next");`,
    replace: `const write = { ...doneWrite(job, attempts, data, "next"), state: "released" as const };`,
    caughtBy: {
      file: ONCE_TEST,
      test: "G66 a result is kept, and comes again over eviction, abort and SIGKILL",
    },
  },
  {
    name: "calls of an object do not join the one that works",
    guarantee: "G66",
    file: `${ROOM}/process.ts`,
    find: `    this.#flights.set(id, { fingerprint: job.fingerprint, end });\n`,
    replace: ``,
    caughtBy: {
      file: ONCE_TEST,
      test: "G66 calls that come at once have one effect, and all get its result",
    },
  },
  {
    name: "an older fence still writes",
    guarantee: "G66",
    file: `${ROOM}/fences.ts`,
    find: `if (current === own) return`,
    replace: `if (current >= own) return`,
    caughtBy: {
      file: ONCE_TEST,
      test: "G66 of several fences of a name the newest counts, over lives and also for others",
    },
  },
  {
    name: "an alarm whose work throws is over",
    guarantee: "G67",
    file: `${ROOM}/alarms.ts`,
    find: `this.#record(alarm, applyFailedRun(alarm, this.#clock.nowMs(), this.#bounds, unit));`,
    replace: `this.#record(alarm, unit < 0 ? applyFailedRun(alarm, 0, this.#bounds, unit) : undefined);`,
    caughtBy: {
      file: ALARMS_TEST,
      test: "G67 work that throws seven times is tried again, and counts once",
    },
  },
  {
    name: "a wake does not look whether the alarm is there",
    guarantee: "G67",
    file: `${ROOM}/alarms.ts`,
    find: `this.#armedMs = (await this.#storage.getAlarm()) ?? undefined;`,
    replace: `this.#armedMs = (await this.#storage.getAlarm()) ?? 0;`,
    caughtBy: {
      file: ALARMS_TEST,
      test: "G67 an alarm that was deleted behind the object's back comes back at the next wake",
    },
  },
  {
    name: "a wake moves the alarm to a later time",
    guarantee: "G67",
    file: `${RULES}/alarms.ts`,
    find: `if (armedMs > wantedMs) return wantedMs;`,
    replace: `if (armedMs !== wantedMs) return wantedMs;`,
    caughtBy: {
      file: `${RULES}/alarms.test.ts`,
      test: "G67 is never moved later, unless it was lost",
    },
  },
  {
    name: "a repeated alarm makes up for every time that it has missed",
    guarantee: "G67",
    file: `${RULES}/alarms.ts`,
    find: `const nextMs = dueMs + everyMs * (1 + missedOf(alarm, nowMs));`,
    replace: `const nextMs = dueMs + everyMs * (1 + 0 * missedOf(alarm, nowMs));`,
    caughtBy: {
      file: `${RULES}/alarms.test.ts`,
      test: "G67 that was missed many times runs once, and then in its old rhythm",
    },
  },
  {
    name: "a duplicate of a source is not acknowledged again",
    guarantee: "G68",
    file: `${RULES}/sequence.ts`,
    find: `if (sequence <= last) return { kind: "duplicate" };`,
    replace: `if (sequence < last) return { kind: "duplicate" };`,
    caughtBy: {
      file: `${RULES}/sequence.test.ts`,
      test: "G68 a number is next, a duplicate or early",
    },
  },
  {
    name: "a number is given to two events",
    guarantee: "G68",
    file: `${RULES}/delivery.ts`,
    find: `first: peer.first + peer.ids.length,`,
    replace: `first: peer.first + peer.acknowledged,`,
    caughtBy: { file: `${RULES}/delivery.test.ts`, test: LOSSES },
  },
  {
    name: "a new epoch is begun without an answer of the receiver",
    guarantee: "G68",
    file: `${RULES}/delivery.ts`,
    find: `    isOpening: true,\n    first: 1,`,
    replace: `    isOpening: false,\n    first: 0,`,
    caughtBy: {
      file: `${RULES}/delivery.test.ts`,
      test: "G68 what was given up is known to have arrived by the answer to what follows it",
    },
  },
  {
    name: "a receiver takes an old number of a restored sender for a repetition",
    guarantee: "G68",
    file: `${RULES}/delivery.ts`,
    find: `    sequence > decision.state.lastSequence - ENDS_KEPT;`,
    replace: `    sequence <= decision.state.lastSequence;`,
    caughtBy: {
      file: `${RULES}/delivery.test.ts`,
      test: "G68 the receiver refuses a number of other content, one that is older than it knows, and an old epoch",
    },
  },
  {
    name: "the checksum of a chunk is not compared",
    guarantee: "G69",
    file: `${ROOM}/export-format.ts`,
    find: `if (!isSameBytes(digest, chunk.subarray(0, HASH_BYTES)))`,
    replace: `if (digest.length !== HASH_BYTES)`,
    caughtBy: {
      file: "test/objects/export.test.ts",
      test: "G69 a flipped byte in any chunk, a missing, swapped, repeated or added chunk: refused, and nothing has changed",
    },
  },
  {
    name: "two imports of an object mix their chunks",
    guarantee: "G69",
    file: `${ROOM}/export.ts`,
    find: `  importing.add(storage);\n`,
    replace: ``,
    caughtBy: {
      file: ROUGH_TEST,
      test: "G69 of two imports that meet one is refused, and the other is whole",
    },
  },
  {
    name: "an import runs every statement that it is given",
    guarantee: "G69",
    file: `${ROOM}/export.ts`,
    find: `if (sorted(found) !== sorted(made)) throw`,
    replace: `if (sorted(found) === undefined) throw`,
    caughtBy: {
      file: ROUGH_TEST,
      test: "G69 an export whose lines are not those of an export is refused",
    },
  },
  {
    name: "work whose rows are refused keeps its claim",
    guarantee: "G66",
    file: `${ROOM}/process.ts`,
    find: `      await this.#release(job, token, attempts).catch(() => undefined);`,
    replace: `      if (attempts < 0) await this.#release(job, token, attempts);`,
    caughtBy: { file: ROUGH_TEST, test: "G66 work whose rows are refused is done again at once" },
  },
  {
    name: "an object whose storage was emptied does not make its tables again",
    guarantee: "G66",
    file: `${ROOM}/exactly-once.ts`,
    find: `if (/no such table: hapax_/.test(String(error)))`,
    replace: `if (/no such table: other_/.test(String(error)))`,
    caughtBy: {
      file: ROUGH_TEST,
      test: "G66 an object whose storage was emptied goes on, and its alarm falls silent",
    },
  },
  {
    name: "slow work of an alarm holds up the others",
    guarantee: "G67",
    file: `${ROOM}/alarms.ts`,
    find: `const most = BATCH - running;`,
    replace: `const most = running > 0 ? 0 : BATCH;`,
    caughtBy: {
      file: ROUGH_TEST,
      test: "G67 slow work of one alarm does not hold up the others",
    },
  },
  {
    name: "all alarms that are due run at once",
    guarantee: "G67",
    file: `${ROOM}/alarms.ts`,
    find: `this.#due(tried, running + failed).slice(0, most)`,
    replace: `this.#due(tried, 2 * tried.size)`,
    caughtBy: {
      file: ROUGH_TEST,
      test: "G67 of many alarms that are due at once a hundred run at a time",
    },
  },
  {
    name: "an alarm that was set while the clock was ahead waits for it",
    guarantee: "G67",
    file: `${RULES}/alarms.ts`,
    find: ` && known.dueMs <= nowMs + everyMs`,
    replace: ``,
    caughtBy: {
      file: `${RULES}/alarms.test.ts`,
      test: "a named alarm > G67 that repeats begins anew if it was set while the clock was ahead",
    },
  },
  {
    name: "messages that came too early are held without a bound of their bytes",
    guarantee: "G68",
    file: `${RULES}/sequence.ts`,
    find: ` || this.#bytes + bytes > this.#bytesMax`,
    replace: ``,
    caughtBy: {
      file: ROUGH_TEST,
      test: "G68 messages that came too early are held up to a number of bytes",
    },
  },
  {
    name: "a sender forgets an object that it is sending to",
    guarantee: "G68",
    file: `${ROOM}/to-objects.ts`,
    find: `if (oldest !== undefined) this.#live.delete(oldest);`,
    replace: `if (oldest !== undefined) this.#live.clear();`,
    caughtBy: {
      file: `${ROOM}/to-objects.test.ts`,
      test: "G68 events for more objects than are known in memory arrive in one go, also if each object wants a new epoch",
    },
  },
];
