/**
 * What follows appends. The engine calls an observer inside the synchronous step of an append with data
 * (also of a creation with a body), so that causes and effects are one atomic commit.
 *
 * An append among the changes that an observer returns is observed like any other.
 */

import type { Change } from "../core/change.ts";
import type { StreamState } from "../core/stream.ts";
import type { SubscriptionChange } from "../core/subscription.ts";
import type { TimeMs } from "../core/types.ts";

export interface AppendObserver {
  /** False: nothing follows any stream, and `before` and `after` need not be called. */
  readonly isFollowing: boolean;
  /** Before the append is applied; the changes returned are applied first. */
  before(state: StreamState, atMs: TimeMs): readonly Change[];
  /** After the append is applied; the changes returned follow it. */
  after(state: StreamState, atMs: TimeMs): readonly Change[];
  /** Changes of subscriptions that a transaction makes; the changes returned are applied instead. */
  acked(changes: readonly SubscriptionChange[]): readonly Change[];
}
