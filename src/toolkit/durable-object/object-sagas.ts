/** Sagas of an object: while one is not at its end, an alarm is set, so that a later life of the object goes on with it. */

import type { Sagas } from "../saga/contract.ts";

/** A crash keeps a saga from others for so long, by default. A later life of the object frees it at once. */
const LATEST_MS = 30_000;
/** Sagas that stay due are looked at with pauses. */
const PAUSE_MS_MIN = 50;

/** Sets the alarm of sagas: so many milliseconds from now, at the latest. */
export type ArmSagas = (inMs: number) => void;

/** When the next saga is due: milliseconds from now. */
export type NextSaga = () => Promise<number | undefined>;

export function objectSagas<Tx>(sagas: Sagas<Tx>, arm: ArmSagas, next: NextSaga): Sagas<Tx> {
  /** Armed before anything is written, so that no crash can leave a saga without an alarm; and by what is due after it. */
  const armed =
    <Args extends readonly unknown[], T>(act: (...args: Args) => Promise<T>) =>
    async (...args: Args): Promise<T> => {
      arm(LATEST_MS);
      try {
        return await act(...args);
      } finally {
        const nextMs = await next();
        if (nextMs !== undefined) arm(Math.max(PAUSE_MS_MIN, nextMs));
      }
    };
  return {
    start: (saga, identity, input, options) =>
      armed(() => sagas.start(saga, identity, input, options))(),
    signal: armed((...args: Parameters<Sagas<Tx>["signal"]>) => sagas.signal(...args)),
    retry: armed((...args: Parameters<Sagas<Tx>["retry"]>) => sagas.retry(...args)),
    skip: armed((...args: Parameters<Sagas<Tx>["skip"]>) => sagas.skip(...args)),
    abort: armed((...args: Parameters<Sagas<Tx>["abort"]>) => sagas.abort(...args)),
    finish: armed((...args: Parameters<Sagas<Tx>["finish"]>) => sagas.finish(...args)),
    in: (tx) => {
      const joined = sagas.in(tx);
      return {
        // In the caller's transaction: the alarm is committed with the saga.
        start: (saga, identity, input) => {
          arm(0);
          return joined.start(saga, identity, input);
        },
        signal: (ref, name, payload) => {
          arm(0);
          return joined.signal(ref, name, payload);
        },
      };
    },
    run: (signal) => sagas.run(signal),
    runDue: () => sagas.runDue(),
    list: (filter) => sagas.list(filter),
    find: (ref) => sagas.find(ref),
    measure: () => sagas.measure(),
    stop: () => sagas.stop(),
    [Symbol.asyncDispose]: () => sagas.stop(),
  };
}

/** Drives what is due, and sets the alarm for what is due later. */
export async function runDueSagas<Tx>(sagas: Sagas<Tx>, arm: ArmSagas): Promise<void> {
  const { nextDueMs } = await sagas.runDue();
  if (nextDueMs !== undefined) arm(Math.max(PAUSE_MS_MIN, nextDueMs));
}
