/**
 * `hapax/outbox`: publishes the events that you add in the transactions of your business data, if and only if these
 * transactions are committed: by a function of yours, or to streams of a Hapax server. Works with any ledger that has an
 * outbox.
 */

export { createOutbox, type Outbox, type OutboxMessage } from "./outbox/adding.ts";
export {
  createDeadLetters,
  type OutboxDeadLetter,
  type OutboxDeadLetters,
} from "./outbox/dead-letters.ts";
export { forgetRelay } from "./outbox/forgetting.ts";
export { hapaxPublisher, type HapaxPublisherOptions } from "./outbox/hapax-publisher.ts";
export type { OutboxEvent } from "./outbox/log.ts";
export {
  functionPublisher,
  type FunctionPublisherOptions,
  type Publisher,
} from "./outbox/publisher.ts";
export { createRelay, type Relay } from "./outbox/relay.ts";
export { acceptRestore } from "./outbox/target.ts";
export type { RelayOptions } from "./outbox/relay-options.ts";
export type { DeadLetterGroup } from "../base/dead-letter.ts";
