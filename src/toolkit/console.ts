/**
 * `hapax/console`: a web page over your own database. It shows entries, running and stuck work, sagas with their time
 * line, the outbox and its dead events. You mount it under a path of your own app, on every runtime with `Request` and
 * `Response`.
 */

export type { ConsoleOptions, ConsoleVisitor, LedgerConsole } from "./console/contract.ts";
export { createConsole } from "./console/handler.ts";
