/**
 * What an identity may do, worked out once for each identity. One place decides: every handler asks here.
 *
 *   - a request is allowed if one grant allows all of it;
 *   - the answer depends on names and grants alone, never on what exists, so a refusal tells nothing of what exists;
 *   - a namespace is compared by whole segments, and comes before all grants.
 *
 * PROTOCOL.md §21.
 */

import { HapaxError } from "../../base/errors.ts";
import { Glob } from "../../base/glob.ts";
import { BETWEEN, joinScoped, splitScoped } from "../core/scoped-name.ts";
import { hasEnded, onIdentityEnd } from "./endings.ts";
import type { Action, Grant, Identity, Quotas } from "./identity.ts";

/** What a request is about. A name that is left out plays no part in it. */
export interface AccessSubject {
  readonly stream?: string | undefined;
  readonly producer?: string | undefined;
  readonly group?: string | undefined;
  readonly subscription?: string | undefined;
}

/** Streams that a group or a subscription follows. */
export interface Followed {
  readonly pattern?: string | undefined;
  readonly streams: readonly string[];
}

/** Decisions about streams that are remembered for each identity. */
const REMEMBERED_MAX = 1000;
/** Up to so many streams are compared in one step: some tenths of a millisecond. */
const AT_ONCE_MAX = 100;

interface CompiledGrant {
  readonly actions: ReadonlySet<Action>;
  readonly streams: readonly Glob[] | undefined;
  readonly groups: readonly NamePattern[] | undefined;
  readonly subscriptions: readonly NamePattern[] | undefined;
  readonly producers: readonly NamePattern[] | undefined;
}

/** A name, or the beginning of names. */
interface NamePattern {
  readonly text: string;
  readonly isPrefix: boolean;
}

const EMPTY: AccessSubject = {};

/** What a caller may do. */
export interface Access {
  /** Of the identity, for logs and metrics. Undefined: the server has no authentication. */
  readonly name: string | undefined;
  /** Without a slash at the end. */
  readonly namespace: string | undefined;
  readonly quotas: Quotas;
  /** When the identity ends, in Unix time. */
  readonly expiresAtMs: number;
  /** Whether nothing is refused, so that nothing has to be looked at. Data and not a getter: every append looks at it. */
  readonly isUnlimited: boolean;
  /** Whether one grant allows the action on all that the request is about. */
  may(action: Action, subject?: AccessSubject): boolean;
  /** The beginning that all reachable streams with this beginning have. Undefined: there are none. */
  beginningOf(prefix: string): string | undefined;
  /** Throws the refusal if no grant allows it. */
  require(action: Action, subject?: AccessSubject): void;
  /** Throws the refusal if no grant allows one of the actions. */
  requireOneOf(actions: readonly Action[], subject?: AccessSubject): void;
  /** Throws the refusal unless the identity has no namespace and a grant allows the action on everything. */
  requireWholeServer(action: Action): void;
  /** Calls `leave` when the identity ends before its time. The returned function takes it out. */
  onEnd(leave: () => void): () => void;
  /** Throws the refusal if the identity has ended since it was let in: a body or a wait may take long. */
  requireCurrent(nowMs: number): void;
  /** Whether the streams that are followed are all within one grant for the action. */
  mayFollow(action: Action, subject: AccessSubject, followed: Followed): boolean;
  /** The same in steps, for very many streams; afterwards `mayFollow` answers at once. Undefined: it does so now. */
  followingSteps(
    action: Action,
    subject: AccessSubject,
    followed: Followed,
  ): Generator<void, boolean, undefined> | undefined;
  /** The name under which the server keeps a group, a subscription or an identity of this namespace. */
  scoped(name: string): string;
  /** The name as the client knows it, or undefined if it is not of this namespace. */
  unscoped(kept: string): string | undefined;
}

const nothing = (): void => undefined;
const always = (): boolean => true;

/** The access of every client of a server without authentication. */
export const UNLIMITED: Access = {
  name: undefined,
  namespace: undefined,
  quotas: {},
  expiresAtMs: Infinity,
  isUnlimited: true,
  may: always,
  beginningOf: (prefix) => prefix,
  require: nothing,
  requireOneOf: nothing,
  requireWholeServer: nothing,
  onEnd: () => nothing,
  requireCurrent: nothing,
  mayFollow: always,
  followingSteps: () => undefined,
  scoped: (name) => name,
  unscoped: (kept) => (kept.includes(BETWEEN) ? undefined : kept),
};

/** The access of an identity. */
export class IdentityAccess implements Access {
  readonly name: string;
  readonly namespace: string | undefined;
  readonly quotas: Quotas;
  readonly expiresAtMs: number;
  readonly #identity: Identity;
  readonly #grants: readonly CompiledGrant[];
  readonly #within: Glob | undefined;
  readonly isUnlimited = false;
  readonly #bindsProducers: boolean;
  /** Answers about streams alone, by action. They never change. */
  readonly #known = new Map<Action, Map<string, boolean>>();
  /** The last question about a stream alone: a request asks it twice, and clients stay with a stream. */
  #asked:
    | { readonly action: Action; readonly stream: string; readonly answer: boolean }
    | undefined;
  /** Answers about groups and what they follow. A group never follows anything else. */
  readonly #following = new WeakMap<Followed, Map<string, boolean>>();

  constructor(identity: Identity) {
    const { namespace, quotas = {}, expiresAtMs = Infinity, grants } = identity;
    this.#identity = identity;
    this.name = identity.name;
    this.namespace = namespace;
    this.quotas = quotas;
    this.expiresAtMs = expiresAtMs;
    this.#grants = grants.map((grant) => compile(grant));
    this.#within = namespace === undefined ? undefined : new Glob(`${escapeStars(namespace)}/**`);
    this.#bindsProducers = this.#grants.some(({ producers }) => producers !== undefined);
  }

  may(action: Action, subject: AccessSubject = EMPTY): boolean {
    const { stream, producer, group, subscription } = subject;
    const isPlain = producer === undefined || !this.#bindsProducers;
    if (stream !== undefined && isPlain && group === undefined && subscription === undefined) {
      return this.#maySee(action, stream);
    }
    if (stream !== undefined && !this.#isWithin(stream)) return false;
    return this.#grants.some(
      (grant) =>
        grant.actions.has(action) &&
        (stream === undefined || matchesStream(grant, stream)) &&
        matchesName(grant.producers, producer) &&
        matchesName(grant.groups, group) &&
        matchesName(grant.subscriptions, subscription),
    );
  }

  beginningOf(prefix: string): string | undefined {
    const { namespace } = this;
    if (namespace === undefined) return prefix;
    const below = `${namespace}/`;
    if (prefix.startsWith(below)) return prefix;
    return below.startsWith(prefix) ? below : undefined;
  }

  require(action: Action, subject: AccessSubject = EMPTY): void {
    if (!this.may(action, subject)) throw notAllowed(action);
  }

  requireOneOf(actions: readonly Action[], subject: AccessSubject = EMPTY): void {
    for (const action of actions) if (this.may(action, subject)) return;
    const [first] = actions;
    if (first !== undefined) throw notAllowed(first);
  }

  requireWholeServer(action: Action): void {
    const isAllowed =
      this.namespace === undefined &&
      this.#grants.some((grant) => grant.actions.has(action) && isForAll(grant));
    if (!isAllowed) throw notAllowed(action);
  }

  onEnd(leave: () => void): () => void {
    return onIdentityEnd(this.#identity, leave);
  }

  requireCurrent(nowMs: number): void {
    if (hasEnded(this.#identity)) {
      throw new HapaxError("unauthenticated", "the credential is not one of this server");
    }
    if (this.expiresAtMs <= nowMs) {
      throw new HapaxError("credential_expired", "the credential has expired");
    }
  }

  mayFollow(action: Action, subject: AccessSubject, followed: Followed): boolean {
    const known = this.#following.get(followed)?.get(questionOf(action, subject));
    if (known !== undefined) return known;
    const steps = this.#compare(action, subject, followed);
    for (;;) {
      const step = steps.next();
      if (step.done === true) return step.value;
    }
  }

  followingSteps(
    action: Action,
    subject: AccessSubject,
    followed: Followed,
  ): Generator<void, boolean, undefined> | undefined {
    if (followed.streams.length <= AT_ONCE_MAX) return undefined;
    const isKnown = this.#following.get(followed)?.has(questionOf(action, subject)) === true;
    return isKnown ? undefined : this.#compare(action, subject, followed);
  }

  *#compare(
    action: Action,
    subject: AccessSubject,
    followed: Followed,
  ): Generator<void, boolean, undefined> {
    let answer = false;
    for (const grant of this.#isAllWithin(followed) ? this.#grants : []) {
      if (!coversPattern(grant, action, subject, followed.pattern)) continue;
      answer = true;
      for (const stream of followed.streams) {
        answer = matchesStream(grant, stream);
        if (!answer) break;
        yield;
      }
      if (answer) break;
    }
    let answers = this.#following.get(followed);
    if (answers === undefined) this.#following.set(followed, (answers = new Map()));
    answers.set(questionOf(action, subject), answer);
    return answer;
  }

  #isAllWithin({ pattern, streams }: Followed): boolean {
    const within = this.#within;
    if (within !== undefined && pattern !== undefined && !within.covers(pattern)) return false;
    return streams.every((stream) => this.#isWithin(stream));
  }

  scoped(name: string): string {
    return joinScoped(this.namespace, name);
  }

  unscoped(kept: string): string | undefined {
    const { namespace, name } = splitScoped(kept);
    return namespace === this.namespace ? name : undefined;
  }

  #maySee(action: Action, stream: string): boolean {
    const asked = this.#asked;
    if (asked?.action === action && asked.stream === stream) return asked.answer;
    let known = this.#known.get(action);
    if (known === undefined) this.#known.set(action, (known = new Map()));
    let answer = known.get(stream);
    if (answer === undefined) {
      answer =
        this.#isWithin(stream) &&
        this.#grants.some((grant) => grant.actions.has(action) && matchesStream(grant, stream));
      if (known.size >= REMEMBERED_MAX) known.clear();
      known.set(stream, answer);
    }
    this.#asked = { action, stream, answer };
    return answer;
  }

  #isWithin(stream: string): boolean {
    const { namespace } = this;
    if (namespace === undefined || stream === namespace) return true;
    return stream.startsWith(namespace) && stream[namespace.length] === "/";
  }
}

export function notAllowed(action: Action): HapaxError {
  return new HapaxError("not_allowed", `no grant allows it: action=${action}`);
}

function compile(grant: Grant): CompiledGrant {
  return {
    actions: new Set(grant.actions),
    streams: grant.streams?.map((pattern) => new Glob(pattern)),
    groups: grant.groups?.map((text) => namePattern(text)),
    subscriptions: grant.subscriptions?.map((text) => namePattern(text)),
    producers: grant.producers?.map((text) => namePattern(text)),
  };
}

function isForAll({ streams, groups, subscriptions, producers }: CompiledGrant): boolean {
  return [streams, groups, subscriptions, producers].every((limit) => limit === undefined);
}

function namePattern(text: string): NamePattern {
  const isPrefix = text.endsWith("*");
  return { text: isPrefix ? text.slice(0, -1) : text, isPrefix };
}

function questionOf(action: Action, { group = "", subscription = "" }: AccessSubject): string {
  return `${action} ${group}${BETWEEN}${subscription}`;
}

/** Whether the grant is for the action on this group or subscription, and for every stream that the pattern can find. */
function coversPattern(
  grant: CompiledGrant,
  action: Action,
  { group, subscription }: AccessSubject,
  pattern: string | undefined,
): boolean {
  const { actions, groups, subscriptions, streams } = grant;
  if (!actions.has(action)) return false;
  if (!matchesName(groups, group) || !matchesName(subscriptions, subscription)) return false;
  if (pattern === undefined || streams === undefined) return true;
  return streams.some((glob) => glob.covers(pattern));
}

function matchesStream({ streams }: CompiledGrant, name: string): boolean {
  return streams === undefined || streams.some((glob) => glob.matches(name));
}

function matchesName(patterns: readonly NamePattern[] | undefined, name: string | undefined) {
  if (patterns === undefined || name === undefined) return true;
  return patterns.some(({ text, isPrefix }) => (isPrefix ? name.startsWith(text) : name === text));
}

function escapeStars(path: string): string {
  return path.replaceAll("*", "%2A");
}
