/** What every part of Hapax shares. Runs anywhere: nothing here needs Node. */

export { type Clock, systemClock } from "./clock.ts";
export type { Appended, Change } from "./core/change.ts";
export type { StreamState } from "./core/stream.ts";
export type { Offset, StreamId, StreamName, TimeMs } from "./core/types.ts";
export { applyChange, createWorld, type World } from "./core/world.ts";
export { type ErrorCode, ERRORS, HapaxError, isHapaxError, type RetryAdvice } from "./errors.ts";
export { LIMITS } from "./limits.ts";
export { type Random, systemRandom } from "./random.ts";
export type { Page, Store, StoreSupport } from "./store.ts";
