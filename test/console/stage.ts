/** A ledger with something to look at: work that is done, is stuck and has failed, sagas, and events that were given up. */

import { GLOBAL, processOnce } from "../../src/toolkit/ledger.ts";
import type { EntryWrite, Ledger } from "../../src/toolkit/ledgers/ledger.ts";
import { createOutbox, createRelay, functionPublisher } from "../../src/toolkit/outbox.ts";
import { createSagas, defineSaga } from "../../src/toolkit/saga.ts";

/** A text that would run if it became markup. */
export const EVIL = `"><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>`;
/** What must not be shown unless it is asked for. */
export const SECRET = "card 4000-1234";

const retry = { attemptsMax: 1 };
let isDown = true;
export const order = defineSaga<{ readonly card: string }>("order")
  .call("reserve", { run: () => ({ reserved: SECRET }), retry })
  .pivot("pay", { kind: "call", run: () => "paid", retry })
  .call("ship", {
    run: () => {
      if (isDown) throw new Error(`no route ${EVIL}`);
      return "parcel 1";
    },
    retry,
  })
  .call("tell", { run: () => "told", retry });
export const nap = defineSaga<{ readonly card: string }>("nap").sleep("rest", 3_600_000);

export const RUNNING: EntryWrite = {
  state: "running",
  token: "next",
  attempts: 1,
  leaseMs: 600_000,
  keepMs: 3_600_000,
  fingerprint: { value: undefined },
  data: { value: undefined },
};
export const ABSENT = { kind: "absent" } as const;

/** Whether the last step of the saga fails. */
export function setDown(value: boolean): void {
  isDown = value;
}

/** Goes on with every saga that is due. */
export async function runSagas<Tx>(ledger: Ledger<Tx>): Promise<void> {
  await createSagas(ledger, [order, nap]).runDue();
}

export async function populate<Tx>(ledger: Ledger<Tx>): Promise<void> {
  isDown = true;
  await ledger.migrate();
  await processOnce(ledger, { scope: GLOBAL, key: "order-17" }, () => ({ note: SECRET }));
  await processOnce(ledger, { scope: EVIL, key: EVIL }, () => EVIL);
  const { entries } = ledger;
  const put = async (key: string, write: Partial<EntryWrite>): Promise<void> => {
    await entries.put({ kind: "once", scope: "shop", key }, ABSENT, { ...RUNNING, ...write });
  };
  await put("runs now", {});
  await put("left behind", { leaseMs: 0 });
  const failure = new TextEncoder().encode(JSON.stringify({ name: "Error", message: EVIL }));
  await put("has failed", { state: "failed", leaseMs: undefined, data: { value: failure } });
  const sagas = createSagas(ledger, [order, nap]);
  const input = { card: SECRET };
  await sagas.start(order, { scope: "shop", key: "order 1" }, input, { waitMs: 20_000 });
  await sagas.start(order, { scope: EVIL, key: EVIL }, input, { waitMs: 20_000 });
  const nap1 = { scope: "shop", key: "nap 1" };
  await sagas.start(nap, nap1, input);
  // It is as far as it gets when it sleeps.
  while ((await sagas.find({ saga: "nap", ...nap1 }))?.state !== "sleeping")
    await new Promise((resolve) => setTimeout(resolve, 5));
  await sagas.stop();
  if (ledger.supports.outbox.length === 0) return;
  const outbox = createOutbox(ledger);
  await ledger.transaction(async (tx) => {
    await outbox.add(tx, { topic: "mail", key: "ann", payload: SECRET });
    await outbox.add(tx, { topic: EVIL, key: EVIL, payload: EVIL });
    await outbox.add(tx, { topic: "mail", key: "bob", payload: SECRET });
  });
  const fail = functionPublisher(async (event) => {
    throw new Error(`the receiver of ${event.topic} says ${EVIL}`);
  });
  await createRelay(ledger, fail, { retry: { attemptsMax: 1 } }).runOnce();
}
