/** How wakes are written down. The wire knows; the engine is given it. */

import type { Generation, SubscriptionId } from "../../core/subscription-state.ts";
import type { StreamName, TimeMs } from "../../core/types.ts";
import type { FollowedStream } from "./view.ts";

export interface WakeEvent {
  readonly subscription: SubscriptionId;
  /** A stream with pending work. */
  readonly stream: StreamName;
  readonly generation: Generation;
  readonly atMs: TimeMs;
}

export interface Notification {
  readonly subscription: SubscriptionId;
  readonly wakeId: string;
  readonly generation: Generation;
  readonly streams: readonly FollowedStream[];
  /** Where clients reach the server, without a slash at the end. */
  readonly baseUrl: string;
  readonly token: string;
}

export interface SubscriptionFormat {
  /** One record as a JSON stream stores it. */
  wakeEvent(event: WakeEvent): Uint8Array;
  notification(notification: Notification): Uint8Array;
  /** Whether a webhook's answer says that everything is done. */
  parseAnswer(body: Uint8Array): boolean;
}
