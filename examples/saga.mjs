/**
 * A checkout in three systems: a shelf in our database, a payment provider whose answer gets lost, and a carrier that is out of
 * labels. The provider charges once although it is called twice, and everything is taken back when no parcel can be sent.
 *
 *   npm run build && node examples/saga.mjs
 */

import { createSagas, defineSaga, describeSaga } from "hapax/saga";
import { memoryLedger } from "hapax/ledgers/memory";

// In production: postgresLedger(pool), or sqliteLedger(() => new Database("shop.db")).
const ledger = memoryLedger();
await ledger.migrate();

const shelf = { teapots: 1 };
let calls = 0;
const provider = {
  payments: new Map(),
  async charge(cents, idempotencyKey) {
    calls += 1;
    if (!this.payments.has(idempotencyKey)) this.payments.set(idempotencyKey, cents);
    // The money has moved, and the answer is lost.
    if (calls === 1) throw new Error("socket hang up");
    return { payment: idempotencyKey };
  },
  async refund(payment) {
    this.payments.delete(payment);
  },
};
const carrier = { labels: 1 };

class OutOfLabels extends Error {}

const checkout = defineSaga("checkout")
  .tx("reserve", {
    run: ({ tx }) => {
      shelf.teapots -= 1;
      tx.undo(() => (shelf.teapots += 1)); // What a database does by itself.
    },
    undo: () => void (shelf.teapots += 1),
  })
  .call("charge", {
    run: ({ key, input }) => provider.charge(input.cents, key),
    // No answer may mean that it has happened: the provider finds it by the key of the charge.
    undo: ({ outcome, runKey }) =>
      provider.refund(outcome.kind === "done" ? outcome.result.payment : runKey),
    retry: { pauseMs: 10 },
  })
  .call("label", {
    run: () => {
      if (carrier.labels === 0) throw new OutOfLabels("the carrier has no labels left");
      carrier.labels -= 1;
      return { label: "L1" };
    },
    isFinal: (error) => error instanceof OutOfLabels,
  });

const sagas = createSagas(ledger, [checkout]);
for (const key of ["order-1", "order-2"]) {
  const ended = await sagas.start(
    checkout,
    { scope: "*", key },
    { cents: 500 },
    { waitMs: 10_000 },
  );
  console.log(`${key}: ${ended.state}${ended.cause ? ` (${ended.cause.message})` : ""}`);
  shelf.teapots += key === "order-1" ? 1 : 0; // A delivery.
}
console.log(
  `${calls} calls, ${provider.payments.size} payment, ${shelf.teapots} teapot on the shelf`,
);
const first = await sagas.find({ saga: "checkout", scope: "*", key: "order-1" });
for (const { what, step, note } of first.history)
  console.log(["  ", what, step, note].filter((word) => word !== undefined).join(" "));
console.log(describeSaga(checkout));
await sagas.stop();
