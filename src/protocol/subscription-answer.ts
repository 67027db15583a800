/** Encodes the answers about subscriptions, and what goes to webhooks and wake streams. PROTOCOL.md §11. */

import type { Generation, SubscriptionSettings } from "../streams/core/subscription-state.ts";
import type { Offset, StreamName, TimeMs } from "../streams/core/types.ts";
import { splitScoped } from "../streams/core/scoped-name.ts";
import { CONTROL_ROOT, formatRelativePath } from "./subscription-path.ts";
import { formatOffset, formatRfc3339 } from "./values.ts";

interface ShownLink {
  readonly stream: StreamName;
  readonly isExplicit: boolean;
  readonly acked: Offset | undefined;
}

interface ShownStream extends ShownLink {
  readonly tail: Offset;
  readonly hasPending: boolean;
}

interface ShownSubscription {
  readonly id: string;
  readonly settings: SubscriptionSettings;
  readonly createdAtMs: TimeMs;
  readonly isFailed: boolean;
  readonly links: readonly ShownLink[];
  readonly baseUrl: string;
  readonly keyId: string | undefined;
}

interface ShownClaim {
  readonly wakeId: string;
  readonly generation: Generation;
  readonly token: string;
  readonly streams: readonly ShownStream[];
  readonly leaseMs: number;
}

const utf8 = new TextEncoder();

export function encodeSubscription(subscription: ShownSubscription): Uint8Array {
  const { id: kept, settings, createdAtMs, isFailed, links, baseUrl, keyId: kid } = subscription;
  const { way, pattern, leaseMs, description } = settings;
  const id = splitScoped(kept).name;
  const signing = { alg: "ed25519", kid, jwks_url: `${baseUrl}${CONTROL_ROOT}jwks.json` };
  return encodeJson({
    id,
    subscription_id: id,
    type: way.kind === "webhook" ? "webhook" : "pull-wake",
    pattern: pattern === undefined ? undefined : formatRelativePath(pattern),
    streams: links.map(encodeLink),
    webhook: way.kind === "webhook" ? { url: way.url, signing } : undefined,
    wake_stream: way.kind === "pull_wake" ? formatRelativePath(way.wakeStream) : undefined,
    lease_ttl_ms: leaseMs,
    created_at: formatRfc3339(createdAtMs),
    status: isFailed ? "failed" : "active",
    description,
  });
}

export function encodeClaim(claim: ShownClaim): Uint8Array {
  const { wakeId, generation, token, streams, leaseMs } = claim;
  return encodeJson({
    wake_id: wakeId,
    generation,
    token,
    streams: streams.map(encodeStream),
    lease_ttl_ms: leaseMs,
  });
}

export function encodeReported(isWokenAgain: boolean): Uint8Array {
  return encodeJson({ ok: true, next_wake: isWokenAgain });
}

/** How the engine encodes wakes. */
export const subscriptionFormat = {
  /** Encodes a wake as a record. JSON streams store each record with a comma behind it. */
  wakeEvent(event: {
    readonly subscription: string;
    readonly stream: StreamName;
    readonly generation: Generation;
    readonly atMs: TimeMs;
  }): Uint8Array {
    const { subscription, stream, generation, atMs } = event;
    const record = {
      type: "wake",
      subscription_id: splitScoped(subscription).name,
      stream: formatRelativePath(stream),
      generation,
      ts: atMs,
    };
    return utf8.encode(`${JSON.stringify(record)},`);
  },

  notification(wake: {
    readonly subscription: string;
    readonly wakeId: string;
    readonly generation: Generation;
    readonly streams: readonly ShownStream[];
    readonly baseUrl: string;
    readonly token: string;
  }): Uint8Array {
    const { wakeId, generation, streams, baseUrl, token } = wake;
    // The token names the namespace, too.
    const id = splitScoped(wake.subscription).name;
    const path = `${CONTROL_ROOT}subscriptions/${encodeURIComponent(id)}/callback`;
    return encodeJson({
      subscription_id: id,
      wake_id: wakeId,
      generation,
      streams: streams.map(encodeStream),
      callback_url: baseUrl + path,
      callback_token: token,
    });
  },

  /** Whether a webhook's answer says that everything is done. Any other answer means nothing. */
  parseAnswer(body: Uint8Array): boolean {
    try {
      const value: unknown = JSON.parse(new TextDecoder().decode(body));
      return typeof value === "object" && value !== null && "done" in value && value.done === true;
    } catch {
      return false; // A page of HTML, or an empty body: the receiver will call back.
    }
  },
};

function encodeLink(link: ShownLink) {
  return {
    path: formatRelativePath(link.stream),
    link_type: link.isExplicit ? "explicit" : "glob",
    acked_offset: link.acked === undefined ? "-1" : formatOffset(link.acked),
  };
}

function encodeStream(stream: ShownStream) {
  const { tail, hasPending } = stream;
  return { ...encodeLink(stream), tail_offset: formatOffset(tail), has_pending: hasPending };
}

function encodeJson(value: unknown): Uint8Array {
  return utf8.encode(JSON.stringify(value));
}
