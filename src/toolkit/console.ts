/**
 * `hapax/console`: a page for people over your own database: entries, running and stuck work, sagas with their time line, the outbox,
 * its dead events. You mount it under a path of your own app, on every runtime with `Request` and `Response`.
 */

export type { ConsoleOptions, ConsoleVisitor, LedgerConsole } from "./console/contract.ts";
export { createConsole } from "./console/handler.ts";
