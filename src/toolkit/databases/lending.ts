/**
 * Lends the object of the user's client to the work of a transaction. The work gets a stand-in of the same type, which does
 * what the object does until the transaction ends.
 *
 *   - after the end, a stand-in and everything that it handed out refuse every call: a late write would be outside of
 *     the transaction, or inside another one;
 *   - a statement that begins or ends a transaction is refused: the ledger does both.
 */

import { isStopped, onStop, type Stopper } from "../../base/aborts.ts";
import { HapaxError } from "../../base/errors.ts";

/** The rules under which a client is lent. */
export interface Lending {
  /** Runs before each call; throws to refuse it. `isOutermost`: the call is to the transaction itself, not to a result. */
  before(name: PropertyKey, args: readonly unknown[], isOutermost: boolean, target: object): void;
  /** Returns the result of a call that need not be made. Undefined: it is made. */
  instead?(
    name: PropertyKey,
    args: readonly unknown[],
    isOutermost: boolean,
    target: object,
  ): unknown;
  after?(
    name: PropertyKey,
    args: readonly unknown[],
    isOutermost: boolean,
    result: unknown,
    target: object,
  ): void;
  /** Runs when the work has changed a member of a lent object. */
  changed?(target: object): void;
  /** Runs at the end of the loan. */
  end?(): void;
  /** Answers a refused call. Default: the call throws. */
  refuse?(error: unknown, name: PropertyKey, args: readonly unknown[]): unknown;
  /** Returns the arguments that the call gets in place of its own. */
  prepare?(name: PropertyKey, args: readonly unknown[]): readonly unknown[];
  /** Returns whether the member may be used after the end. */
  isFree?(name: PropertyKey): boolean;
  /** Returns what a member that is an object is read as. Default: the object itself. */
  member?(value: object, lend: (target: object) => object): object;
  /** Returns the answer of a call in place of its result. An object that can write is lent as well. */
  answer?(
    name: PropertyKey,
    result: object,
    lend: (target: object) => object,
    isOutermost: boolean,
  ): unknown;
}

/** One object, lent for one transaction. */
export class Loan<T extends object> {
  /** The stand-in. */
  readonly tx: T;
  readonly #lending: Lending;
  #isOver = false;

  constructor(target: T, lending: Lending) {
    this.#lending = lending;
    this.tx = this.#standIn(target, true);
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#lending.end?.();
  }

  require(): void {
    if (!this.#isOver) return;
    const what = "the transaction has ended: what is written now would not be a part of it";
    throw new HapaxError("invalid_request", `${what}. Await every write before the work returns`);
  }

  /** Returns another stand-in of the same loan: for a savepoint. */
  lend<Inner extends object>(target: Inner): Inner {
    return this.#standIn(target, true);
  }

  #standIn<O extends object>(target: O, isOutermost: boolean): O {
    return new StandIn(this as Loan<object>, this.#lending, target, isOutermost).tx as O; // Every access goes to the target.
  }

  /** Calls a method of a lent object. */
  call(
    { target, tx, isOutermost }: StandIn,
    name: PropertyKey,
    method: object,
    args: readonly unknown[],
  ): unknown {
    const lending = this.#lending;
    try {
      if (lending.isFree?.(name) !== true) this.require();
      lending.before(name, args, isOutermost, target);
    } catch (error) {
      if (lending.refuse === undefined) throw error;
      return lending.refuse(error, name, args);
    }
    // Cast: the proxy calls only functions.
    const result: unknown =
      lending.instead?.(name, args, isOutermost, target) ??
      Reflect.apply(
        method as (...values: unknown[]) => unknown,
        target,
        lending.prepare?.(name, args) ?? args,
      );
    lending.after?.(name, args, isOutermost, result, target);
    if (result === target) return tx;
    const isObject = typeof result === "object" || typeof result === "function";
    if (!isObject || result === null || lending.answer === undefined) return result;
    return lending.answer(name, result, (inner) => this.lendInner(inner), isOutermost);
  }

  /** Returns a stand-in for what a lent object has handed out. */
  lendInner(target: object): object {
    return this.#standIn(target, false);
  }
}

/** A stand-in answers this name with its handler. No other code has it. */
const HANDLER = Symbol("stand-in");

interface LentMethod {
  readonly name: PropertyKey;
  readonly of: object;
  readonly method: object;
}

/** The handler of one stand-in. A class: transactions make many, and each trap of its own would be made with it. */
class StandIn implements ProxyHandler<object> {
  readonly loan: Loan<object>;
  readonly target: object;
  readonly isOutermost: boolean;
  readonly tx: object;
  readonly #lending: Lending;
  /** The first one that was asked for: most stand-ins are asked for one. */
  #first: LentMethod | undefined;
  #methods: Map<PropertyKey, LentMethod> | undefined;

  constructor(loan: Loan<object>, lending: Lending, target: object, isOutermost: boolean) {
    this.loan = loan;
    this.target = target;
    this.isOutermost = isOutermost;
    this.#lending = lending;
    this.tx = new Proxy(shadowOf(target), this);
  }

  // `this` of a member is the target itself: clients have private members, and a stand-in has none.
  get(_: object, name: PropertyKey): unknown {
    if (name === HANDLER) return this;
    const { target } = this;
    // Cast: any object may have any member.
    const value = (target as Readonly<Record<PropertyKey, unknown>>)[name];
    if (name === "constructor") return value;
    if (typeof value === "function") return this.#methodOf(name, value);
    if (typeof value !== "object" || value === null) return value;
    const lending = this.#lending;
    return lending.member === undefined
      ? value
      : lending.member(value, (inner) => this.loan.lendInner(inner));
  }

  #methodOf(name: PropertyKey, value: object): object {
    const known = this.#first?.name === name ? this.#first : this.#methods?.get(name);
    if (known?.of === value) return known.method;
    const method = new Proxy(value, new MethodCall(this, name));
    const lent = { name, of: value, method };
    if (this.#first === undefined) this.#first = lent;
    else if (this.#first.name === name) this.#first = lent;
    else (this.#methods ??= new Map<PropertyKey, LentMethod>()).set(name, lent);
    return method;
  }

  set(_: object, name: PropertyKey, value: unknown): boolean {
    this.#lending.changed?.(this.target);
    return Reflect.set(this.target, name, value, this.target);
  }

  has(_: object, name: PropertyKey): boolean {
    return Reflect.has(this.target, name);
  }

  deleteProperty(_: object, name: PropertyKey): boolean {
    this.#lending.changed?.(this.target);
    return Reflect.deleteProperty(this.target, name);
  }

  defineProperty(_: object, name: PropertyKey, descriptor: PropertyDescriptor): boolean {
    this.#lending.changed?.(this.target);
    return Reflect.defineProperty(this.target, name, descriptor);
  }

  ownKeys(): (string | symbol)[] {
    return Reflect.ownKeys(this.target);
  }

  getOwnPropertyDescriptor(_: object, name: PropertyKey): PropertyDescriptor | undefined {
    const own = Reflect.getOwnPropertyDescriptor(this.target, name);
    return own === undefined ? undefined : { ...own, configurable: true };
  }

  apply(_: object, _this: unknown, args: unknown[]): unknown {
    return this.loan.call(this, "", this.target, args);
  }
}

/** The handler of a method of a stand-in. */
class MethodCall implements ProxyHandler<object> {
  readonly #of: StandIn;
  readonly #name: PropertyKey;

  constructor(of: StandIn, name: PropertyKey) {
    this.#of = of;
    this.#name = name;
  }

  apply(method: object, _this: unknown, args: unknown[]): unknown {
    return this.#of.loan.call(this.#of, this.#name, method, args);
  }
}

/**
 * Returns the object behind a proxy: an empty object of the same kind. A proxy of the target itself could not replace fixed
 * members, such as those of a better-sqlite3 transaction: JavaScript demands that it returns the member itself.
 */
function shadowOf(target: object): object {
  const prototype = Reflect.getPrototypeOf(target);
  if (typeof target !== "function") return Object.create(prototype) as object;
  const shadow = (): undefined => undefined;
  if (prototype !== Function.prototype) Object.setPrototypeOf(shadow, prototype);
  return shadow;
}

/** Returns the object behind a stand-in, and its loan; undefined for any other object. */
export function loanOf<T extends object>(
  tx: T,
): { readonly target: T; readonly loan: Loan<object> } | undefined {
  const handler: unknown = Reflect.get(Object(tx) as object, HANDLER);
  // A stand-in has the type of its target. Some clients answer every name with something.
  return handler instanceof StandIn
    ? { target: handler.target as T, loan: handler.loan }
    : undefined;
}

/** Rejects with the reason of the signal as soon as it aborts. The work goes on, but its stand-in refuses to write. */
export function unlessEnded<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  return signal === undefined ? work : unlessStopped(work, { signal });
}

/** As `unlessEnded`, for a stopper. */
export function unlessStopped<T>(work: Promise<T>, over: Stopper | undefined): Promise<T> {
  if (over === undefined) return work;
  return new Promise((resolve, reject) => {
    const end = (): void => {
      reject(asError(over.signal.reason));
    };
    if (isStopped(over)) end();
    const stopListening = onStop(over, end);
    work.then(
      (value) => {
        stopListening();
        resolve(value);
      },
      (error: unknown) => {
        stopListening();
        reject(error as Error);
      },
    );
  });
}

export function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

const ANY_CONTROL = /\b(?:begin|start|commit|end|rollback|abort|prepare)\b/i;
const CONTROL =
  /^(?:begin|start\s+transaction|commit|rollback(?!\s+(?:work\s+|transaction\s+)?to\b)|abort|prepare\s+transaction)\b/i;
const END = /^end(?:\s+(?:work|transaction))?(?:\s+and\s.*)?$/i;

/** Throws if the text has such a statement. Savepoints are allowed. */
export function refuseControl(text: string): void {
  if (!ANY_CONTROL.test(text)) return;
  const bare = withoutQuoted(text);
  // The body of a trigger or a function ends with END.
  const mayEnd = !/\bcreate\b/i.test(bare);
  for (const part of bare.split(";")) {
    const statement = part.trim();
    if (!CONTROL.test(statement) && !(mayEnd && END.test(statement))) continue;
    const word = statement.split(/\s/, 1)[0]?.toUpperCase() ?? "";
    const what = `the work ran ${word} in the transaction that it was given`;
    const next = "it is committed when the work returns, and rolled back when it throws";
    throw new HapaxError("invalid_request", `${what}: ${next}. Use SAVEPOINT to undo a part`);
  }
}

/** The beginning of a quotation or a comment. A string with E has escapes. */
const QUOTED = /\b[eE]'|['"$]|--|\/\*/g;
/** `$` and the name behind it: the possible beginning of a dollar quotation. */
const DOLLAR = /\$(?=((?:[A-Za-z_]\w*)?\$))/g;

/** Returns the text without strings, quoted names and comments. Takes one pass, also for long or broken texts. */
function withoutQuoted(text: string): string {
  const parts: string[] = [];
  const ends = new Ends(text);
  let from = 0;
  for (;;) {
    QUOTED.lastIndex = from;
    const found = QUOTED.exec(text);
    if (found === null) break;
    const end = ends.after(found[0], found.index);
    parts.push(text.slice(from, found.index), end === undefined ? found[0] : " ");
    from = end ?? found.index + found[0].length;
  }
  parts.push(text.slice(from));
  return parts.join("");
}

/** Finds the ends of quotations. One without an end goes to the end of the text: no database accepts that. */
class Ends {
  readonly #text: string;
  /** The last place of each dollar quotation. */
  #lastDollars: Map<string, number> | undefined;

  constructor(text: string) {
    this.#text = text;
  }

  /** Returns the place behind the quotation; undefined if none begins there. */
  after(opening: string, at: number): number | undefined {
    const inside = at + opening.length;
    switch (opening) {
      case "--":
        return this.#behind("\n", inside);
      case "/*":
        return this.#behind("*/", inside);
      case "'":
      case '"':
        // A doubled quote ends one quotation and begins the next.
        return this.#behind(opening, inside);
      case "$":
        return this.#behindDollars(at);
      default:
        return this.#behindEscaped(inside);
    }
  }

  #behind(closing: string, inside: number): number {
    const at = this.#text.indexOf(closing, inside);
    return at === -1 ? this.#text.length : at + closing.length;
  }

  #behindEscaped(inside: number): number {
    const text = this.#text;
    for (let at = inside; at < text.length; at += 1) {
      if (text[at] === "'") return at + 1;
      if (text[at] === "\\") at += 1;
    }
    return text.length;
  }

  #behindDollars(at: number): number | undefined {
    this.#lastDollars ??= new Map(
      Array.from(this.#text.matchAll(DOLLAR), ({ index, 1: rest = "" }) => [`$${rest}`, index]),
    );
    DOLLAR.lastIndex = at;
    const found = DOLLAR.exec(this.#text);
    if (found?.index !== at) return undefined;
    const quote = `$${found[1] ?? ""}`;
    const inside = at + quote.length;
    // A parameter or a name may look like the beginning of a quotation.
    if ((this.#lastDollars.get(quote) ?? -1) < inside) return undefined;
    return this.#behind(quote, inside);
  }
}
