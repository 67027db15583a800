/**
 * `hapax/durable-object`: exactly once in a Durable Object with SQLite, also across hibernation, eviction and crashes. Needs a
 * runtime with Durable Objects, and imports nothing from it.
 */

export { type AlarmCall, objectAlarms, type ObjectAlarms } from "./durable-object/alarms.ts";
export type { ObjectAlarmStorage, ObjectTableStorage } from "./durable-object/context.ts";
export type {
  ExactlyOnce,
  ExactlyOnceOptions,
  ExactlyOnceStorage,
  ExactlyOnceContext,
} from "./durable-object/contract.ts";
export { exactlyOnce } from "./durable-object/exactly-once.ts";
export { exportObject, importObject } from "./durable-object/export.ts";
export type { ExactlyOnceMetrics } from "./durable-object/metrics.ts";
export {
  fromObjects,
  type ObjectDelivery,
  type ObjectMessage,
} from "./durable-object/receiving.ts";
export type { ObjectWork } from "./durable-object/steps.ts";
export { toObjects } from "./durable-object/to-objects.ts";
