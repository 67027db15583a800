/** For those who test Hapax or build on it: the contract of stores, and a world that can be steered. */

export {
  appendCommand,
  createCommand,
  keyClaim,
  producerClaim,
  sessionClaim,
  textOf,
} from "./testing/commands.ts";
export { type FaultProxy, type FaultProxySettings, openFaultProxy } from "./testing/fault-proxy.ts";
export {
  type ExtensionCapability,
  extensionCapabilities,
  type ExtensionCase,
  extensionCases,
  type ExtensionTarget,
} from "./testing/extension-conformance.ts";
export { type FaultPlan, type FaultyStore, openFaultyStore } from "./testing/faulty-store.ts";
export { type GatedStore, openGatedStore } from "./testing/gated-store.ts";
export { createSeededRandom, type SeededRandom } from "./testing/seeded-random.ts";
export {
  createSimulatedDisk,
  type DiskCall,
  type DiskCallKind,
  type DiskFault,
  type SimulatedDisk,
} from "./testing/simulated-disk.ts";
export {
  type ConformanceCase,
  type OpenStore,
  storeConformance,
  storeConformanceFor,
} from "./testing/store-conformance.ts";
export { createVirtualClock, type VirtualClock } from "./testing/virtual-clock.ts";
export { turn, watch, type Watched } from "./testing/watch.ts";
