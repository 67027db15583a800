/**
 * `hapax/outbox`: events that are added in the transactions of the business data, and published if and only if those are
 * committed. Works with any ledger that has an outbox.
 */

export {
  createOutbox,
  type Outbox,
  type OutboxMessage,
  type OutboxSettings,
} from "./outbox/adding.ts";
export {
  createDeadLetters,
  type DeadLetterFilter,
  type DeadLetterGroup,
  type DeadLetterSettings,
  type OutboxDeadLetter,
  type OutboxDeadLetters,
} from "./outbox/dead-letters.ts";
export { type ForgetOptions, forgetRelay, type ForgottenRelay } from "./outbox/forgetting.ts";
export {
  type BatchIdentity,
  functionPublisher,
  type FunctionPublisherSettings,
  type PublishBatch,
  type PublishContext,
  type Publisher,
  type PublishOutcome,
  type UncertainRefusal,
} from "./outbox/publisher.ts";
export { createRelay, type Relay, type RelayReport } from "./outbox/relay.ts";
export type { RelayCleanup, RelayRetry, RelaySettings } from "./outbox/relay-settings.ts";
export type { HeldFailure, OutboxEvent } from "./outbox/log.ts";
