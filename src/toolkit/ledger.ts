/**
 * `hapax/ledger`: effects that happen exactly once in your own database. Work that is done once for a key, an inbox
 * for messages, leases with fencing, versioned updates, positions of pipelines, and a sweeper. Needs a ledger,
 * which is your database: see `hapax/ledgers/…`. Needs no Hapax server.
 */

export type { Ledger } from "./ledgers/ledger.ts";
export { createHybridClock, type HybridClock } from "./once/hybrid-clock.ts";
export { createInbox, type Inbox, type InboxOptions } from "./once/inbox.ts";
export { acquireLease, fenced, type HeldLease, type LeaseOptions } from "./once/lease.ts";
export { ledgerSink } from "./once/ledger-sink.ts";
export type { OnceOptions } from "./once/options.ts";
export { InProgress, type OnceResult, processOnce } from "./once/process-once.ts";
export { getNewest, setIfNewer } from "./once/set-if-newer.ts";
export { setVersion } from "./once/set-version.ts";
export { createSweeper, type Sweeper, type SweeperOptions } from "./once/sweeper.ts";
export { GLOBAL, type ScopedKey } from "./rules/scoped-key.ts";
