/**
 * Tools to test Hapax, and programs that use it: contracts as test cases, a clock that tests move, a proxy that makes
 * faults, and a checker of histories (what was called, and what was answered).
 */

export { checkHistory, explainVerdict } from "./checker.ts";
export { openHistoryFile, readHistory } from "./checker-files.ts";
export { createHistory, type History, type HistoryEvent } from "./checker-history.ts";
export { CHECKER_RULES } from "./checker-problems.ts";
export { extensionCapabilities, extensionCases } from "./extension-conformance.ts";
export { FAILPOINTS, setFailpoint } from "./failpoints.ts";
export { type FaultProxy, openFaultProxy } from "./fault-proxy.ts";
export { ledgerConformance, type LedgerTarget, whySkipped } from "./ledger-conformance.ts";
export {
  type CrashTarget,
  ledgerCrashes,
  ledgerZombies,
  runCrashTask,
  startCrashProcess,
} from "./ledger-crashes.ts";
export { outboxConformance, type OutboxTarget } from "./outbox-conformance.ts";
export { sinkConformance, type SinkTarget } from "./sink-conformance.ts";
export { type OpenStore, storeConformance } from "./store-conformance.ts";
export { createVirtualClock, type VirtualClock } from "./virtual-clock.ts";
