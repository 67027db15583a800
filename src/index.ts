/**
 * What most programs begin with, `connect` and `processOnce`, and what all parts of Hapax share. Runs anywhere: nothing here needs
 * Node.
 */

export { type Clock, systemClock } from "./base/clock.ts";
export { connect } from "./client/client.ts";
export type { Change } from "./streams/core/change.ts";
export type { Offset, StreamId } from "./streams/core/types.ts";
export { applyChange, createWorld, type World } from "./streams/core/world.ts";
export { type ErrorCode, ERRORS, HapaxError, isHapaxError } from "./base/errors.ts";
export { LIMITS } from "./protocol/all-limits.ts";
export { type Random, systemRandom } from "./base/random.ts";
export { GLOBAL, processOnce } from "./toolkit/ledger.ts";
export { verifyWebhookSignature } from "./streams/signer.ts";
export type { Page, Store } from "./streams/store.ts";
