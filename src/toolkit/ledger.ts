/**
 * `hapax/ledger`: effects that happen exactly once in the user's own database. Work that is done once for a key, an inbox
 * for messages, leases with fencing, versioned updates, and a sweeper. Needs a ledger: `hapax/ledgers/…`. Depends on nothing
 * of the server.
 */

export type { EntryState } from "./rules/claim.ts";
export type { JsonOf } from "../base/json-of.ts";
export type { VersionDecision } from "./rules/version.ts";
export { type ErrorCode, HapaxError, isHapaxError, type RetryAdvice } from "../base/errors.ts";
export type {
  Entries,
  Entry,
  EntryFilter,
  EntryWrite,
  Expected,
  Ledger,
  LedgerSupport,
  Place,
  PlacedEntry,
} from "./ledgers/ledger.ts";
export {
  type CounterName,
  type GaugeName,
  type Meter,
  type MetricLabels,
  METRICS,
} from "./meters/meter.ts";
export { GLOBAL } from "./once/check.ts";
export type { Tools } from "./once/claiming.ts";
export { FAILPOINTS } from "./once/failpoints.ts";
export {
  createInbox,
  type Handled,
  type Inbox,
  type InboxMessage,
  type InboxSettings,
} from "./once/inbox.ts";
export {
  acquireLease,
  fenced,
  type HeldLease,
  type LeaseProof,
  type LeaseSettings,
} from "./once/lease.ts";
export { InProgress, type Once, processOnce } from "./once/process-once.ts";
export type { ResultCodec } from "./once/result.ts";
export { type SetVersion, setVersion } from "./once/set-version.ts";
export type {
  OnceCallContext,
  OnceInTransaction,
  OnceOptions,
  OnceProbed,
  OnceRepeatable,
  OnceTransactionContext,
  Reconciled,
  ReconcileQuestion,
} from "./once/settings.ts";
export { createSweeper, type Sweeper, type SweeperSettings } from "./once/sweeper.ts";
export type {
  HeldEvent,
  HeldFailure,
  HeldFilter,
  NewOutboxEvent,
  OutboxBatch,
  OutboxEvent,
  OutboxLag,
  OutboxLog,
  OutboxRows,
  OutboxSpan,
  OutboxSpans,
} from "./outbox/log.ts";
