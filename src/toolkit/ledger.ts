/**
 * `hapax/ledger`: effects that happen exactly once in the user's own database. Work that is done once for a key, an inbox
 * for messages, leases with fencing, versioned updates, positions of pipelines, and a sweeper. Needs a ledger:
 * `hapax/ledgers/…`. Depends on nothing of the server.
 */

export type { JsonOf } from "../base/json-of.ts";
export { type ErrorCode, HapaxError, isHapaxError } from "../base/errors.ts";
export type { Entry, Ledger, Place } from "./ledgers/ledger.ts";
export { GLOBAL, type ScopedKey } from "./rules/scoped-key.ts";
export { FAILPOINTS } from "./once/failpoints.ts";
export { createInbox, type Inbox, type InboxOptions, type InboxResult } from "./once/inbox.ts";
export { acquireLease, fenced, type HeldLease, type LeaseOptions } from "./once/lease.ts";
export { ledgerSink } from "./once/ledger-sink.ts";
export { InProgress, type OnceResult, processOnce } from "./once/process-once.ts";
export type { ResultCodec } from "./once/result.ts";
export { setVersion } from "./once/set-version.ts";
export type { OnceOptions } from "./once/options.ts";
export { createSweeper, type Sweeper, type SweeperOptions } from "./once/sweeper.ts";
export type {
  HeldEvent,
  HeldEvents,
  HeldFilter,
  LogOutbox,
  NewOutboxEvent,
  OutboxBatch,
  OutboxEvent,
  OutboxLag,
  OutboxLog,
  OutboxRows,
  OutboxSpan,
  OutboxSpans,
  OutboxWay,
  RowsOutbox,
} from "./outbox/log.ts";
