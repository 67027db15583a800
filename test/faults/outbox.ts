/** Faults of the outbox: what would be lost, published twice, or out of the order of its key. */

import type { Fault } from "./faults.ts";

const RULES = "src/toolkit/rules/outbox.test.ts";
const RELAY = "test/outbox/relay.test.ts";
const FORGETTING = "test/outbox/forgetting.test.ts";
const HAPAX = "test/outbox/hapax-publisher.test.ts";
const ONCE_IN_ORDER =
  "every event is stored once in the order of its key, with lost, late and frozen attempts";

export const outboxFaults: readonly Fault[] = [
  {
    name: "a batch is sent before its intent is kept",
    guarantee: "G28",
    file: "src/toolkit/outbox/relay-work.ts",
    find: "if (!isRetry) await this.#keep(ledger, { ...this.#state, intent });",
    replace: "if (!isRetry) this.#state = { ...this.#state, intent };",
    caughtBy: { file: RELAY, test: ONCE_IN_ORDER },
  },
  {
    name: "a relay that lost its lease settles all the same",
    guarantee: "G28",
    file: "src/toolkit/outbox/relay-work.ts",
    find: "await this.#claim.progress(joined, encodeState(next));",
    replace: "await this.#claim.progress(joined, encodeState(next)).catch(() => undefined);",
    caughtBy: {
      file: RELAY,
      test: "and wakes after another has settled what it failed with holds nothing back again",
    },
  },
  {
    name: "the rest of a refused batch goes under the next sequence",
    guarantee: "G28",
    file: "src/toolkit/rules/outbox.ts",
    find: "return isWhole ? { epoch, sequence: sequence + 1 } : { epoch: epoch + 1, sequence: 0 };",
    replace:
      "return isWhole || sequence >= 0 ? { epoch, sequence: sequence + 1 } : { epoch, sequence };",
    caughtBy: { file: RULES, test: "what is left of a batch goes under a new epoch" },
  },
  {
    name: "an unknown outcome goes again under another number",
    guarantee: "G28",
    file: "src/toolkit/outbox/publishing.ts",
    find: "      await backOff(options, repeats, sending.pausing);",
    replace: '      return sending.tried.map(() => ({ kind: "skipped" })) as T;',
    caughtBy: { file: RELAY, test: ONCE_IN_ORDER },
  },
  {
    name: "events overtake one of their key that has failed",
    guarantee: "G28",
    file: "src/toolkit/rules/outbox.ts",
    find: '} else if (mark === undefined && waiting.has(key)) marks.set(at, { at, kind: "blocked" });',
    replace: '} else if (waiting.size < 0) marks.set(at, { at, kind: "blocked" });',
    caughtBy: { file: RULES, test: "behind a failure its key waits, and nothing else" },
  },
  {
    name: "events overtake those of their key that are held",
    guarantee: "G28",
    file: "src/toolkit/outbox/relay-work.ts",
    find: "beginIntent(subject, events, (key) => waiting.has(key)),",
    replace: "beginIntent(subject, events, (key) => waiting.has(`not ${key}`)),",
    caughtBy: { file: RELAY, test: ONCE_IN_ORDER },
  },
  {
    name: "a function is called for what is behind a failure",
    guarantee: "G28",
    file: "src/toolkit/outbox/publisher.ts",
    find: "if (!(await tryOne(event, at))) break;",
    replace: "await tryOne(event, at);",
    caughtBy: {
      file: RELAY,
      test: "a poisoned key holds up itself alone, in its order",
    },
  },
  {
    name: "what waits behind a letter never goes on",
    guarantee: "G28",
    file: "src/toolkit/outbox/relay-work.ts",
    find: 'next?.state === "waiting" && next.reason === undefined && next.dueInMs > 0;',
    replace: 'next?.state === "waiting" && next.reason !== undefined && next.dueInMs > 0;',
    caughtBy: {
      file: RELAY,
      test: "a replayed letter goes first, and what waited behind it follows in order",
    },
  },
  {
    name: "events of two databases have the same idempotency keys",
    guarantee: "G28",
    file: "src/toolkit/outbox/publisher.ts",
    find: "const idempotencyKey = `outbox:${source}:${event.id}`;",
    replace: "const idempotencyKey = `outbox:${source.length}:${event.id}`;",
    caughtBy: {
      file: RELAY,
      test: "an event has one idempotency key in all attempts, and other databases have others",
    },
  },
  {
    name: "what one relay has passed is deleted, though other relays need it",
    guarantee: "G28",
    file: "src/toolkit/outbox/upkeep.ts",
    find: "return await outbox.spans.clean(positions, keepMs, batchMax);",
    replace: "return await outbox.spans.clean(positions.slice(-1), keepMs, batchMax);",
    caughtBy: {
      file: RELAY,
      test: "only what all relays are past is deleted, and nothing that is held",
    },
  },
  {
    name: "a batch goes to the server without its number",
    guarantee: "G28",
    file: "src/toolkit/outbox/hapax-publisher.ts",
    find: '"key" in identity ? { key: identity.key } : { producer: identity };',
    replace: '"key" in identity ? { key: identity.key } : { key: globalThis.crypto.randomUUID() };',
    caughtBy: {
      file: HAPAX,
      test: "every event is in its stream once, over a bad network and with relays that die at any point",
    },
  },
  {
    name: "a refusal counts while an attempt is on its way",
    guarantee: "G28",
    file: "src/toolkit/outbox/hapax-publisher.ts",
    find: 'if (error.outcome === "unknown") return { isUncertain: true, outcomes: skipped };',
    replace: 'if (error.outcome === "unknown") return skipped;',
    caughtBy: {
      file: HAPAX,
      test: "a refused batch whose first attempt arrives late is not stored twice",
    },
  },
  {
    name: "a relay begins while others delete what it plans",
    guarantee: "G28",
    file: "src/toolkit/outbox/upkeep.ts",
    find: 'outbox.spans.cleansIn === "alone"',
    replace: 'outbox.spans.cleansIn !== "rows"',
    caughtBy: {
      file: FORGETTING,
      test: "a relay that begins while others delete keeps the stretch that it has planned",
    },
  },
  {
    name: "a relay that is made anew uses the numbers of the one before",
    guarantee: "G28",
    file: "src/toolkit/outbox/relay-work.ts",
    find: "life: isNew ? options.random.id() : life,",
    replace: "life,",
    caughtBy: {
      file: FORGETTING,
      test: "a relay that is made anew under an old name loses nothing at a target that remembers its numbers",
    },
  },
  {
    name: "a running relay is forgotten",
    guarantee: "G28",
    file: "src/toolkit/outbox/forgetting.ts",
    find: "(entry.leaseLeftMs ?? 0) > 0",
    replace: "(entry.leaseLeftMs ?? 0) < 0",
    caughtBy: {
      file: FORGETTING,
      test: "a relay cannot be forgotten while it runs, and can when its lease is over",
    },
  },
  {
    name: "a call that never ends holds up the relay",
    guarantee: "G28",
    file: "src/toolkit/outbox/publisher.ts",
    find: "      reject(late);\n",
    replace: "",
    caughtBy: {
      file: RELAY,
      test: "a call that never ends fails its event after a while, and everybody else goes on",
    },
  },
  {
    name: "JSON is read and written again on its way",
    guarantee: "G28",
    file: "src/toolkit/outbox/hapax-publisher.ts",
    find: "  JSON.parse(text);\n  return text;",
    replace: "  return JSON.stringify(JSON.parse(text));",
    caughtBy: {
      file: HAPAX,
      test: "JSON is stored as it was added, with every digit, alone and in an envelope",
    },
  },
];
