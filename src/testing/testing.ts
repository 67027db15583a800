/**
 * Tools to test Hapax, and programs that use it: contracts as test cases, simulated parts, a checker of histories.
 */

export { type CheckOptions, checkHistory, explainVerdict } from "./checker.ts";
export type { FinalState, Verdict } from "./checker.ts";
export { type HistoryFile, openHistoryFile, readHistory } from "./checker-files.ts";
export { createHistory, type History, type HistoryEvent } from "./checker-history.ts";
export { CHECKER_RULES } from "./checker-problems.ts";
export {
  type FaultProxy,
  type FaultProxyOptions,
  openFaultProxy,
  type ProxiedRequest,
} from "./fault-proxy.ts";
export {
  extensionCapabilities,
  type ExtensionCase,
  extensionCases,
  type ExtensionTarget,
} from "./extension-conformance.ts";
export {
  type ConformanceCase,
  type OpenStore,
  storeConformance,
  storeConformanceFor,
} from "./store-conformance.ts";
export { createVirtualClock, type VirtualClock } from "./virtual-clock.ts";
export { sinkConformance, type SinkTarget } from "./sink-conformance.ts";
export { setFailpoint } from "../base/failpoint.ts";
export {
  type CrashTarget,
  ledgerCrashes,
  ledgerZombies,
  runCrashTask,
  startCrashProcess,
} from "./ledger-crashes.ts";
export { ledgerConformance, type LedgerTarget } from "./ledger-conformance.ts";
export { outboxConformance, type OutboxTarget } from "./outbox-conformance.ts";
