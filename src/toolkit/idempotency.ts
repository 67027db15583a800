/**
 * `hapax/idempotency`: idempotency keys for HTTP APIs. Runs on every platform with `Request` and `Response`. Adapters for
 * frameworks are beside it.
 */

import type { Ledger } from "./ledgers/ledger.ts";
import { Idempotency } from "./idempotency/engine.ts";
import type { IdempotencyOptions } from "./idempotency/options.ts";

export type { Completer } from "./idempotency/completer.ts";
export { type IdempotencyContext, NotStarted } from "./idempotency/context.ts";
export type { FetchHandler, Idempotency } from "./idempotency/engine.ts";
export { idempotencyOpenApi } from "./idempotency/openapi.ts";
export type { IdempotencyOptions } from "./idempotency/options.ts";
export type { IdempotencyRequest } from "./idempotency/request.ts";
export { GLOBAL } from "./rules/scoped-key.ts";

/**
 * Creates the engine of idempotency keys, which stores keys and answers in a ledger. Throws
 * `invalid_options`.
 *
 * ```ts
 * import { createIdempotency } from "hapax/idempotency";
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const idempotency = createIdempotency(memoryLedger(), {
 *   scope: ({ headers }) => headers.get("x-tenant") ?? "",
 * });
 * let payments = 0;
 * const pay = (): Promise<Response> => {
 *   const headers = { "Idempotency-Key": "order-17", "x-tenant": "acme" };
 *   const request = new Request("http://localhost/pay", { method: "POST", headers });
 *   return idempotency.handle(request, async (_request, { tx }) => {
 *     payments += 1;
 *     tx.undo(() => (payments -= 1));
 *     return Response.json({ paid: true }, { status: 201 });
 *   });
 * };
 * const [first, second] = [await pay(), await pay()];
 * console.assert(first.status === 201 && second.status === 201 && payments === 1);
 * console.assert(second.headers.get("Idempotency-Replayed") === "true");
 * ```
 */
export function createIdempotency<Tx, Source = unknown>(
  ledger: Ledger<Tx>,
  options: IdempotencyOptions<Source>,
): Idempotency<Tx, Source> {
  return new Idempotency(ledger, options);
}
