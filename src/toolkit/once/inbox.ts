/**
 * The inbox: one transaction handles a message and notes that it was handled.
 *
 *   - a message has its effect once for each consumer, also if it is delivered many times, and many times at once;
 *   - consumers and scopes are kept apart: the same key of two of them is two messages;
 *   - a message whose work failed leaves no note: the next delivery handles it;
 *   - a forgotten message does not count as new: one that is older than the retention is refused, unless it is known;
 *   - a retention shorter than the time for which the sender repeats is refused;
 *   - inside the caller's transaction everything stays or goes with it;
 *   - with an effect elsewhere, a message is claimed, handled and noted: a crash in between repeats its work under the same key.
 */

import { decideMessageAge } from "../rules/inbox-window.ts";
import { HapaxError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoint.ts";
import { pause } from "../../base/pause.ts";
import type { Entries, EntryWrite, Ledger, Place } from "../ledgers/ledger.ts";
import type { ScopedKey } from "../rules/scoped-key.ts";
import { Check } from "./check.ts";
import { type ResolvedTools, resolveTools, type Tools } from "./tools.ts";
import {
  LEASE_MS_DEFAULT,
  LEASE_MS_MAX,
  LEASE_MS_MIN,
  LOCK_MS_MAX,
  RETAIN_MS_MAX,
  WAIT_MS_MAX,
} from "./limits.ts";
import type { OnceCallContext } from "./options.ts";
import { growingPauses } from "./pauses.ts";
import { InProgress, processOnce } from "./process-once.ts";

/** Options of an inbox. */
export interface InboxOptions extends Tools {
  /** The name of the consumer. Each consumer handles every message once. */
  readonly consumer: string;
  /**
   * How long the inbox remembers messages, in milliseconds. Choose it longer than any sender repeats them.
   */
  readonly retainMs: number;
  /** How long the sender repeats a message, in milliseconds, if you know it. Must not be longer than `retainMs`. */
  readonly senderHorizonMs?: number;
}

/** Options of an inbox whose work has its effect in another system. */
export interface InboxElsewhereOptions extends InboxOptions {
  /** The work may be repeated, because the other side recognises the `key` that it gets. */
  readonly effect: "repeatable";
  /** How long a crash blocks a message, in milliseconds. Default 30 s. */
  readonly leaseMs?: number;
}

/** The result of `Inbox.handle()`. */
type InboxResult<T> =
  | { readonly isDuplicate: false; readonly result: T }
  /** The message was handled before. Its result is not kept. */
  | { readonly isDuplicate: true };

/** The messages of one consumer. */
export interface Inbox<Tx> {
  /**
   * Handles a message, unless it was handled before. Its `key` is the id of the message, and its `scope` is the sender: a
   * broker, a webhook, a stream. The work and the record that it was done are one transaction: if the work throws, both are
   * rolled back. `sentAtMs` is the time of sending, by the sender's clock: an unknown message older than `retainMs` is
   * refused with `key_expired`. `waitMs` is how long to wait, in milliseconds, while another delivery of the same message is
   * being handled; then `in_progress` is thrown. Without it the call waits until the other one ends, and keeps its
   * connection.
   */
  handle<T>(
    message: ScopedKey,
    work: (tx: Tx) => T | Promise<T>,
    options?: { readonly sentAtMs?: number; readonly waitMs?: number },
  ): Promise<InboxResult<T>>;
  /** Returns the same inbox inside your own transaction. If `handle` throws, roll your transaction back. */
  in(tx: Tx): Inbox<Tx>;
}

/**
 * Creates an inbox in your own database. Throws `invalid_options`, and `unsupported` if the ledger has no transactions.
 *
 * ```ts
 * import { createInbox } from "hapax/ledger";
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const inbox = createInbox(memoryLedger(), {
 *   consumer: "billing",
 *   retainMs: 7 * 86_400_000,
 *   senderHorizonMs: 3 * 86_400_000,
 * });
 * const message = { scope: "payments", key: "evt_1" };
 * const first = await inbox.handle(message, () => "booked");
 * const second = await inbox.handle(message, () => "booked");
 * console.assert(!first.isDuplicate && first.result === "booked" && second.isDuplicate);
 * ```
 */
export function createInbox<Tx>(
  ledger: Ledger<Tx>,
  options: InboxElsewhereOptions,
): Inbox<OnceCallContext>;
/** The usual inbox: the work is in a transaction of the ledger. */
export function createInbox<Tx>(ledger: Ledger<Tx>, options: InboxOptions): Inbox<Tx>;
/** Both of them. */
export function createInbox<Tx>(
  ledger: Ledger<Tx>,
  options: InboxOptions & Partial<InboxElsewhereOptions>,
): Inbox<Tx> | Inbox<OnceCallContext> {
  const check = new Check();
  const { consumer, retainMs, senderHorizonMs, effect } = options;
  check.name("consumer", consumer);
  check.whole("retainMs", retainMs, retainMs, 1, RETAIN_MS_MAX);
  if (senderHorizonMs !== undefined && !(senderHorizonMs <= retainMs))
    check.problem(`retainMs=${retainMs} is less than senderHorizonMs=${senderHorizonMs}`);
  if (effect !== undefined) {
    check.word("effect", effect, ["repeatable"]);
    check.whole("leaseMs", options.leaseMs, LEASE_MS_DEFAULT, LEASE_MS_MIN, LEASE_MS_MAX);
    check.whole("retainMs", retainMs, retainMs, options.leaseMs ?? LEASE_MS_DEFAULT, RETAIN_MS_MAX);
  }
  check.end();
  const terms = { consumer, retainMs, tools: resolveTools(options) };
  if (effect === "repeatable") return inboxElsewhere(ledger, terms, { ...options, effect });
  if (!ledger.supports.transactions)
    throw new HapaxError(
      "unsupported",
      `ledger=${ledger.name} has no transactions: use effect=repeatable`,
    );
  return inboxOf(ledger, terms);
}

interface Terms {
  readonly consumer: string;
  readonly retainMs: number;
  readonly tools: ResolvedTools;
}

const LABELS = { primitive: "inbox" };

function inboxOf<Tx>(ledger: Ledger<Tx>, terms: Terms): Inbox<Tx> {
  return {
    in: (tx) => inboxOf(ledger.in(tx), terms),
    async handle<T>(
      message: ScopedKey,
      work: (tx: Tx) => T | Promise<T>,
      { sentAtMs, waitMs }: { readonly sentAtMs?: number; readonly waitMs?: number } = {},
    ): Promise<InboxResult<T>> {
      const place = placeOf(message, sentAtMs, waitMs, terms);
      const once = (): Promise<InboxResult<T> | "held"> =>
        ledger.transaction(async (tx): Promise<InboxResult<T> | "held"> => {
          const { entries } = ledger.in(tx);
          // The note of a message that is being handled would wait for its end.
          if (waitMs !== undefined && (await entries.lock?.(place))?.kind === "held") return "held";
          const isNew = await note(entries, place, sentAtMs, terms);
          if (!isNew) return { isDuplicate: true };
          await failpoint("inbox.began");
          const result = await work(tx);
          await failpoint("inbox.worked");
          return { isDuplicate: false, result };
        });
      const handled = await untilFree(once, place, waitMs ?? 0, terms.tools);
      const { isDuplicate } = handled;
      if (!ledger.isJoined && !isDuplicate) await failpoint("inbox.committed");
      terms.tools.meter.add(isDuplicate ? "duplicates_total" : "claims_total", 1, LABELS);
      return handled;
    },
  };
}

/** The message is claimed as the work of a key is. Its entry is of the kind `once`, under a scope of its own. */
function inboxElsewhere<Tx>(
  ledger: Ledger<Tx>,
  terms: Terms,
  options: InboxElsewhereOptions,
): Inbox<OnceCallContext> {
  const { retainMs, tools } = terms;
  return {
    in() {
      throw new HapaxError("unsupported", "effect=repeatable has no transaction");
    },
    async handle<T>(
      message: ScopedKey,
      work: (call: OnceCallContext) => T | Promise<T>,
      { sentAtMs, waitMs }: { readonly sentAtMs?: number; readonly waitMs?: number } = {},
    ): Promise<InboxResult<T>> {
      const { key } = placeOf(message, sentAtMs, waitMs, terms);
      const scope = JSON.stringify(["inbox", terms.consumer, message.scope]);
      const place = { kind: "once", scope, key };
      const age = decideMessageAge(sentAtMs, tools.clock.nowMs(), retainMs);
      if (age.headroom !== undefined)
        tools.meter.set("window_headroom_ratio", age.headroom, LABELS);
      if (age.kind === "expired") {
        const entry = await ledger.entries.find(place);
        if (entry?.state === "done" && (entry.keepLeftMs ?? Infinity) > 0)
          return { isDuplicate: true };
        throw expired(place, sentAtMs, retainMs, tools);
      }
      let handled: InboxResult<T> = { isDuplicate: true };
      const handling = async (call: OnceCallContext): Promise<void> => {
        handled = { isDuplicate: false, result: await work(call) };
      };
      const { isDuplicate } = await processOnce(ledger, { scope, key }, handling, {
        ...options,
        waitMs: waitMs ?? 0,
      });
      return isDuplicate ? { isDuplicate } : handled;
    },
  };
}

/** Tries again while another transaction handles the message. */
async function untilFree<T>(
  handle: () => Promise<T | "held">,
  { scope, key }: Place,
  waitMs: number,
  { clock, random, meter }: ResolvedTools,
): Promise<T> {
  const endMs = clock.steadyMs() + waitMs;
  for (const nextMs = growingPauses(random); ;) {
    const handled = await handle();
    if (handled !== "held") return handled;
    const leftMs = endMs - clock.steadyMs();
    if (leftMs <= 0) {
      meter.add("in_progress_total", 1, LABELS);
      throw new InProgress(`scope=${scope} key=${key}`, LOCK_MS_MAX);
    }
    await pause(clock, Math.min(nextMs(), leftMs));
  }
}

function placeOf(
  message: ScopedKey,
  sentAtMs: number | undefined,
  waitMs: number | undefined,
  { consumer }: Terms,
): Place {
  const check = new Check();
  const { scope, key } = check.identity(message);
  const both = check.name("consumer and scope", JSON.stringify([consumer, scope]));
  // Ignored there, a message that is too old to be known would be handled again.
  if ("sentAtMs" in Object(message))
    check.problem("sentAtMs is in the message: pass it in the options, behind the work");
  check.whole("waitMs", waitMs, 0, 0, WAIT_MS_MAX);
  if (sentAtMs !== undefined && !Number.isFinite(sentAtMs))
    check.problem(`sentAtMs=${sentAtMs} is not a time`);
  check.end("invalid_request");
  return { kind: "inbox", scope: both, key };
}

/** Notes the message in the transaction. Returns false if it is noted already. */
async function note(
  entries: Entries,
  place: Place,
  sentAtMs: number | undefined,
  { retainMs, tools }: Terms,
): Promise<boolean> {
  const age = decideMessageAge(sentAtMs, tools.clock.nowMs(), retainMs);
  if (age.headroom !== undefined) tools.meter.set("window_headroom_ratio", age.headroom, LABELS);
  const write: EntryWrite = {
    state: "done",
    token: "next",
    attempts: 1,
    leaseMs: undefined,
    keepMs: retainMs,
    fingerprint: { value: undefined },
    data: { value: undefined },
  };
  for (;;) {
    // Most messages are new: a new message costs one statement. One that is too old is not noted, not even for a moment.
    if (age.kind === "new" && (await entries.put(place, { kind: "absent" }, write)) !== undefined)
      return true;
    const entry = await entries.find(place);
    if (entry !== undefined && (entry.keepLeftMs ?? Infinity) > 0) {
      const headroom = Math.min(1, (entry.keepLeftMs ?? retainMs) / retainMs);
      tools.meter.set("window_headroom_ratio", headroom, LABELS);
      return false;
    }
    if (age.kind === "expired") throw expired(place, sentAtMs, retainMs, tools);
    if (entry === undefined) continue;
    const { token, revision } = entry;
    const written = await entries.put(place, { kind: "unchanged", token, revision }, write);
    if (written !== undefined) return true;
  }
}

function expired(
  { scope, key }: Place,
  sentAtMs: number | undefined,
  retainMs: number,
  { meter }: ResolvedTools,
): HapaxError {
  meter.add("expired_total", 1, LABELS);
  const facts = `scope=${scope} key=${key} sentAtMs=${sentAtMs} retainMs=${retainMs}`;
  const message = `the message is older than the inbox remembers, and may have been handled; ${facts}`;
  return new HapaxError("key_expired", message);
}
