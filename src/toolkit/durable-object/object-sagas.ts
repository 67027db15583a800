/** Sagas of an object: while one is not at its end, an alarm is set, so that a later life of the object goes on with it. */

import type { Sagas } from "../saga/contract.ts";

/** A crash keeps a saga from others for so long, by default. */
const LATEST_MS = 30_000;
/** Sagas that stay due are looked at with pauses. */
const PAUSE_MS_MIN = 50;
/** What makes a saga, or makes it due. */
const ARMED: ReadonlySet<PropertyKey> = new Set([
  "start",
  "signal",
  "retry",
  "skip",
  "abort",
  "finish",
]);

/** Sets the alarm of sagas: so many milliseconds from now, at the latest. */
export type ArmSagas = (inMs: number) => void;

/** When the next saga is due: milliseconds from now. */
export type NextSaga = () => Promise<number | undefined>;

type Act = (...args: unknown[]) => unknown;

export function objectSagas<Tx>(sagas: Sagas<Tx>, arm: ArmSagas, next: NextSaga): Sagas<Tx> {
  /** Armed before anything is written, so that no crash can leave a saga without an alarm; and by what is due after it. */
  const armed = async (act: Act, args: unknown[]): Promise<unknown> => {
    arm(LATEST_MS);
    try {
      return await act(...args);
    } finally {
      armFor(await next(), arm);
    }
  };
  return new Proxy(sagas, {
    get: (target, name): unknown => {
      // Cast: all members of sagas are functions.
      const act = (Reflect.get(target, name) as Act).bind(target);
      if (ARMED.has(name)) return (...args: unknown[]) => armed(act, args);
      if (name !== "in") return act;
      return (tx: Tx) => {
        // In the caller's transaction: the alarm is committed with what it writes.
        arm(0);
        return target.in(tx);
      };
    },
  });
}

/** Drives what is due, and sets the alarm for what is due later. */
export async function runDueSagas<Tx>(sagas: Sagas<Tx>, arm: ArmSagas): Promise<void> {
  armFor((await sagas.runDue()).nextDueMs, arm);
}

function armFor(nextMs: number | undefined, arm: ArmSagas): void {
  if (nextMs !== undefined) arm(Math.max(PAUSE_MS_MIN, nextMs));
}
