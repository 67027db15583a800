/** For those who test Hapax or build on it: the contract of stores, a world to steer, a checker of histories. */

export { type CheckSettings, checkHistory, explainVerdict } from "./checker.ts";
export type { FinalState, Verdict, VerdictCounts } from "./checker.ts";
export type { FoundCommit } from "./checker-commits.ts";
export { type HistoryFile, openHistoryFile, readHistory } from "./checker-files.ts";
export {
  type AppendCall,
  type Call,
  type ClaimCall,
  type ClaimResult,
  type CommitCall,
  createHistory,
  type FoundRecord,
  type History,
  type HistoryEvent,
  type HistorySettings,
  type Observation,
  type OpenCall,
  type Ordered,
  type ReadCall,
  type ReadResult,
  type TransactionCall,
  type WrittenCommit,
  type WrittenRecord,
  type WrittenRecords,
} from "./checker-history.ts";
export {
  CHECKER_RULES,
  type CheckerRule,
  type Problem,
  type ProblemPlace,
} from "./checker-problems.ts";
export type { Pipeline } from "./checker-streams.ts";
export {
  appendCommand,
  createCommand,
  keyClaim,
  producerClaim,
  sessionClaim,
  textOf,
} from "./commands.ts";
export {
  type FaultCounts,
  type FaultProxy,
  type FaultProxySettings,
  type FaultShares,
  type Harm,
  type MadeUpAnswer,
  openFaultProxy,
  type ProxiedRequest,
  type ProxyFate,
} from "./fault-proxy.ts";
export {
  type ExtensionCapability,
  extensionCapabilities,
  type ExtensionCase,
  extensionCases,
  type ExtensionTarget,
} from "./extension-conformance.ts";
export { type FaultPlan, type FaultyStore, openFaultyStore } from "./faulty-store.ts";
export { type GatedStore, openGatedStore } from "./gated-store.ts";
export { createSeededRandom, type SeededRandom } from "./seeded-random.ts";
export {
  createSimulatedDisk,
  type DiskCall,
  type DiskCallKind,
  type DiskFault,
  type SimulatedDisk,
} from "./simulated-disk.ts";
export {
  type ConformanceCase,
  type OpenStore,
  storeConformance,
  storeConformanceFor,
} from "./store-conformance.ts";
export { createVirtualClock, type VirtualClock } from "./virtual-clock.ts";
export { turn, watch, type Watched } from "./watch.ts";
export { type SinkCase, sinkConformance, type SinkTarget } from "./sink-conformance.ts";
export { setFailpoint } from "../base/failpoint.ts";
export {
  type CrashCase,
  type CrashEffects,
  type CrashEnd,
  type CrashHalt,
  type CrashProcess,
  type CrashTarget,
  type CrashTask,
  type CrashWork,
  ledgerCrashes,
  ledgerZombies,
  runCrashTask,
  startCrashProcess,
} from "./ledger-crashes.ts";
export { type LedgerCase, ledgerConformance, type LedgerTarget } from "./ledger-conformance.ts";
export { type OutboxCase, outboxConformance, type OutboxTarget } from "./outbox-conformance.ts";
