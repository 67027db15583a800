/**
 * Lends the transaction of a query builder. Unlike the transaction of a client, it runs nothing itself: it hands out
 * builders, models and queries that do so later. All of them are lent with it.
 *
 *   - a query that was made before the end and is run after it is refused;
 *   - a query that was started and not awaited is waited for: nothing of the work runs between the last look at the
 *     transaction and its COMMIT.
 */

import { HapaxError } from "../../base/errors.ts";
import { Loan, refuseControl } from "./lending.ts";

/** Calls whose first value is a statement. */
const RUNNING: ReadonlySet<PropertyKey> = new Set([
  ...["execute", "raw", "$executeRawUnsafe", "$queryRawUnsafe"],
]);
/** Calls that give a function a transaction inside this one. */
const NESTING: ReadonlySet<PropertyKey> = new Set(["transaction", "savepoint"]);

/** A transaction of a query builder, lent. */
export interface BuilderLoan<Tx extends object> extends Loan<Tx> {
  /** Resolves when everything that was started has ended. */
  settled(): Promise<void>;
}

export function lendBuilder<Tx extends object>(tx: Tx, ending: readonly string[]): BuilderLoan<Tx> {
  const open = new Set<Promise<unknown>>();
  const follow = (started: Promise<unknown>): void => {
    open.add(started);
    const over = (): void => void open.delete(started);
    started.then(over, over);
  };
  const loan: Loan<Tx> = new Loan(tx, {
    before(name, [first], isOutermost) {
      if (!isOutermost) return;
      if (ending.includes(String(name)))
        throw new HapaxError(
          "invalid_request",
          `the work called ${String(name)} on the transaction that it was given: it is committed when the work returns, and rolled back when it throws`,
        );
      if (RUNNING.has(name) && typeof first === "string") refuseControl(first);
    },
    prepare: (name, args) =>
      NESTING.has(name)
        ? args.map((arg) =>
            typeof arg === "function" ? (inner: object) => arg(loan.lend(inner)) : arg,
          )
        : args,
    answer(_name, result, lend) {
      if (result instanceof Promise) follow(result);
      return mayRun(result) ? lend(result) : result;
    },
    member: (value, lend) => (isData(value) ? value : lend(value)),
  });
  const settled = async (): Promise<void> => {
    while (open.size > 0) await Promise.allSettled(open);
  };
  return Object.assign(loan, { settled });
}

/** Kinds of objects that are data, or that were started already. */
const DATA: ReadonlySet<string> = new Set(["Array", "Date", "Error", "Map", "Promise", "Set"]);

function isData(value: object): boolean {
  return ArrayBuffer.isView(value) || DATA.has(Object.prototype.toString.call(value).slice(8, -1));
}

/** Builders, queries and all else that is not a plain object. A query of Prisma is plain, and runs at its `then`. */
function mayRun(result: object): boolean {
  if (isData(result)) return false;
  if (typeof result === "function" || "then" in result) return true;
  const prototype: unknown = Reflect.getPrototypeOf(result);
  return prototype !== null && prototype !== Object.prototype;
}
