/**
 * `hapax/outbox`: publishes the events that you add in the transactions of your business data, if and only if these
 * transactions are committed: by a function of yours, or to streams of a Hapax server. Works with any ledger that has an
 * outbox.
 */

export {
  createOutbox,
  type Outbox,
  type OutboxMessage,
  type OutboxOptions,
} from "./outbox/adding.ts";
export {
  createDeadLetters,
  type DeadLetterOptions,
  type OutboxDeadLetter,
  type OutboxDeadLetters,
  type OutboxLetterFilter,
} from "./outbox/dead-letters.ts";
export { hapaxPublisher, type HapaxPublisherOptions } from "./outbox/hapax-publisher.ts";
export { forgetRelay, type ForgottenRelay } from "./outbox/forgetting.ts";
export {
  functionPublisher,
  type FunctionPublisherOptions,
  type PublishBatch,
  type Publisher,
  type PublishOutcome,
} from "./outbox/publisher.ts";
export { createRelay, type Relay, type RelayReport } from "./outbox/relay.ts";
export type { RelayCleanup, RelayOptions } from "./outbox/relay-options.ts";
export type { OutboxEvent } from "./outbox/log.ts";
export type { DeadLetterFilter, DeadLetterGroup, DeadLetterReason } from "../base/dead-letter.ts";
