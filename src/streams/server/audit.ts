/**
 * The audit: one entry for each act that changes what others have, written when its outcome is known, and so after its commit.
 *
 *   - refusals come from strangers too, so they are limited: so many a second, then one entry that counts the others. Strangers and
 *     each identity are counted apart, so that no client hides what another one does;
 *   - callers choose names, so each text of an entry has a limit.
 *
 * PROTOCOL.md §22.4.
 */

import type { Clock } from "../../base/clock.ts";
import { HEADER, SENT } from "../../protocol/headers.ts";
import { OWN_PREFIX, SUBSCRIPTIONS_PREFIX, TEST_PREFIX } from "../../protocol/reserved.ts";
import { joinScoped } from "../core/scoped-name.ts";
import { decodePercent, formatRfc3339 } from "../../protocol/values.ts";
import type { AuditEntry } from "../log.ts";
import type { Exchange, ServerAnswer, WholeAnswer } from "./exchange.ts";

/** Refusals written in one second: of all strangers together, and of each identity. */
export const REFUSALS_PER_SECOND_MAX = 10;
/** Identities that are counted apart in one second. The others share one count. */
export const IDENTITIES_APART_MAX = 100;
/** Characters of one text as a line shows it: one beyond ASCII is six, such as `\u00e9`. */
export const AUDIT_TEXT_MAX = 512;
const SECOND_MS = 1000;
const NO_ACTS: readonly AuditedAct[] = [];

/** The facts that a handler adds to its audit entry. False: it has changed nothing, and there is no entry. */
export type AuditFacts =
  | false
  | {
      readonly acts?: readonly AuditedAct[];
      readonly details?: Readonly<Record<string, string | number>>;
    };

/** An act and what it was done to. */
export interface AuditedAct {
  readonly act: string;
  readonly target: string;
}

/** What an entry says of its request. */
export type AuditOrigin = Pick<
  AuditEntry,
  "identity" | "namespace" | "peer" | "requestId" | "traceId"
>;

/** What was refused to one identity, or to all strangers, in this second. */
interface RefusalCount {
  readonly who: Pick<AuditEntry, "identity" | "namespace">;
  written: number;
  omitted: number;
}

const NO_ONE_KNOWN = {};

export class Audit {
  readonly #clock: Clock;
  readonly #write: (entry: AuditEntry) => void;
  /** Those of this second, by namespace and name. Empty: no second is counted. */
  #refusals = new Map<string, RefusalCount>();

  constructor(clock: Clock, write: (entry: AuditEntry) => void) {
    this.#clock = clock;
    this.#write = write;
  }

  /** Writes an entry, unless it is one refusal too many. */
  write(entry: Omit<AuditEntry, "time">): void {
    if (entry.outcome !== "done" && !this.#mayRefuse(entry)) return;
    this.#write({ time: formatRfc3339(this.#clock.nowMs()), ...bounded(entry) });
  }

  /** Writes what an answered request has done. `origin` is asked for only if there is an entry. */
  look(exchange: Exchange, answer: ServerAnswer, origin: () => AuditOrigin): void {
    const { status } = answer;
    const { audit, code }: Partial<WholeAnswer> = "live" in answer ? {} : answer;
    if (status >= 400) {
      const act = attemptedAct(exchange, status);
      if (act === undefined) return;
      const outcome = status >= 500 ? "failed" : "refused";
      this.write({ ...act, outcome, ...origin(), status, ...(code === undefined ? {} : { code }) });
      return;
    }
    if (audit === false || isRepeat(answer)) return;
    const shown = audit?.acts === undefined ? doneAct(exchange, status) : undefined;
    const acts = audit?.acts ?? (shown === undefined ? NO_ACTS : [shown]);
    const details = audit?.details === undefined ? {} : { details: audit.details };
    for (const act of acts) {
      this.write({ ...act, outcome: "done", ...origin(), status, ...details });
    }
  }

  #mayRefuse(entry: AuditOrigin): boolean {
    if (this.#refusals.size === 0) this.#clock.after(SECOND_MS, this.#endSecond);
    const count = this.#countOf(entry);
    if (count.written < REFUSALS_PER_SECOND_MAX) {
      count.written += 1;
      return true;
    }
    count.omitted += 1;
    return false;
  }

  #countOf({ identity, namespace }: AuditOrigin): RefusalCount {
    let key = identity === undefined ? STRANGERS : joinScoped(namespace ?? "", identity);
    let who: RefusalCount["who"] =
      identity === undefined
        ? NO_ONE_KNOWN
        : { identity, ...(namespace === undefined ? {} : { namespace }) };
    if (!this.#refusals.has(key) && this.#refusals.size >= IDENTITIES_APART_MAX) {
      [key, who] = [OTHERS, NO_ONE_KNOWN];
    }
    let count = this.#refusals.get(key);
    if (count === undefined) this.#refusals.set(key, (count = { who, written: 0, omitted: 0 }));
    return count;
  }

  readonly #endSecond = (): void => {
    const counts = this.#refusals;
    this.#refusals = new Map();
    const time = formatRfc3339(this.#clock.nowMs());
    for (const { who, omitted } of counts.values()) {
      if (omitted === 0) continue;
      this.#write({
        time,
        act: "access",
        outcome: "refused",
        ...bounded(who),
        details: { omitted },
      });
    }
  };
}

// An identity has a name, so these are keys of none.
const STRANGERS = "strangers";
const OTHERS = "others";

/** The same entry, with each text cut where it is too long. */
function bounded<Members extends object>(members: Members): Members {
  const cut = Object.entries(members).map(([name, value]: [string, unknown]) => {
    if (typeof value === "string") return [name, boundedText(value)];
    return [name, name === "details" ? bounded(value as object) : value];
  });
  // Every member keeps its name and its type.
  return Object.fromEntries(cut) as Members;
}

function boundedText(text: string): string {
  // Short and plain texts need no count.
  if (text.length * ESCAPED_CHARACTERS <= AUDIT_TEXT_MAX) return text;
  let written = 0;
  for (let at = 0; at < text.length; at += 1) {
    written += PLAIN.test(text.charAt(at)) ? 1 : ESCAPED_CHARACTERS;
    if (written > AUDIT_TEXT_MAX) return `${text.slice(0, at)}...`;
  }
  return text;
}

const ESCAPED_CHARACTERS = 6;
const PLAIN = /^[ !#-[\]-~]$/;

/** Whether an answer may have to be written down. Most have not, and a look at them must cost nothing. */
export function mayBeAct(method: string, answer: ServerAnswer): boolean {
  if (answer.status >= 400 || method === "PUT" || method === "DELETE") return true;
  return "audit" in answer && answer.audit !== undefined;
}

/** An act that was done before, under its key, was written then. */
function isRepeat({ headers }: ServerAnswer): boolean {
  return headers[HEADER.keyReplayed] !== undefined;
}

/** An act that shows by its status. All others come from their handler. */
function doneAct({ method, path }: Exchange, status: number): AuditedAct | undefined {
  if (method === "GET" || method === "HEAD" || (method === "PUT" && status !== 201))
    return undefined;
  return method === "POST" ? undefined : actOf(method, path);
}

function attemptedAct(exchange: Exchange, status: number): AuditedAct | undefined {
  const { method, path } = exchange;
  const act = isClose(exchange)
    ? { act: "stream.close", target: nameOf(path) }
    : actOf(method, path);
  if (act !== undefined || (status !== 401 && status !== 403)) return act;
  return { act: "access", target: `${method} ${nameOf(path)}` };
}

function isClose(exchange: Exchange): boolean {
  const { method, path } = exchange;
  if (method !== "POST" || exchange.header(SENT.closed) !== "true") return false;
  return ![OWN_PREFIX, SUBSCRIPTIONS_PREFIX, TEST_PREFIX].some((one) => path.startsWith(one));
}

/** What a method asks for at a path. */
function actOf(method: string, path: string): AuditedAct | undefined {
  const verb = method === "PUT" ? "create" : method === "DELETE" ? "delete" : undefined;
  if (path.startsWith(OWN_PREFIX)) return ownAct(method, verb, path.split("/"));
  if (path.startsWith(SUBSCRIPTIONS_PREFIX)) {
    return subscriptionAct(method, verb, path.slice(SUBSCRIPTIONS_PREFIX.length).split("/"));
  }
  if (verb === undefined || path.startsWith(TEST_PREFIX)) return undefined;
  return { act: `stream.${verb}`, target: nameOf(path) };
}

function ownAct(
  method: string,
  verb: string | undefined,
  [, , root, name = "", action]: readonly string[],
): AuditedAct | undefined {
  const target = nameOf(name);
  if (root === "producers" && method === "DELETE") return { act: "producer.reset", target };
  if (root !== "groups" || name === "") return undefined;
  if (method === "POST" && action === "reset") return { act: "group.reset", target };
  return verb === undefined || action !== undefined ? undefined : { act: `group.${verb}`, target };
}

function subscriptionAct(
  method: string,
  verb: string | undefined,
  [root, id = "", action]: readonly string[],
): AuditedAct | undefined {
  const target = nameOf(id);
  if (root !== "subscriptions" || id === "") return undefined;
  if (action === "streams") {
    const change = method === "POST" ? "link" : method === "DELETE" ? "unlink" : undefined;
    return change === undefined ? undefined : { act: `subscription.${change}`, target };
  }
  if (verb === undefined || action !== undefined) return undefined;
  return { act: `subscription.${verb}`, target };
}

function nameOf(text: string): string {
  return decodePercent(text) ?? text;
}
