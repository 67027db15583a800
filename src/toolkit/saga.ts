/**
 * `hapax/saga`: steps in several systems that all happen, or are all undone, over crashes and restarts. A saga is kept in your
 * own database: `hapax/ledgers/…`. Any process that has its definition goes on with it.
 */

export type { Sagas, SagasOptions } from "./saga/contract.ts";
export { defineSaga, describeSaga, type Saga } from "./saga/definition.ts";
export type { SagaRef } from "./saga/record.ts";
export { createSagas } from "./saga/sagas.ts";
export type { SagaStatus, SagaView } from "./saga/view.ts";
