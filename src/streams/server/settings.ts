/** Settings of the server: plain values, resolved and checked once. */

import { KEY_DEFAULTS, type KeyOverflow } from "../core/keys.ts";
import { SettingsCheck } from "../../base/settings-check.ts";
import { LIMITS } from "../../protocol/limits.ts";

/** Settings of a server. All are optional; units stand in the names. */
export interface ServerSettings {
  /** How long a long-poll waits for data. Default 30,000. */
  readonly longPollMs?: number;
  /** The largest body that is accepted. Default 16 MiB. */
  readonly bodyMaxBytes?: number;
  /** After how long an SSE connection is recycled. Default 60. */
  readonly sseMaxSeconds?: number;
  /** How long a live reader may take nothing before it is cut. Default 30,000. */
  readonly readerStallMs?: number;
  /** Unsent bytes that a live reader may hold. Default 1 MiB. */
  readonly readerBufferBytes?: number;
  /** Bytes of answers to reads that are made or sent at once; readers wait for room. Default 256 MiB. */
  readonly answersMaxBytes?: number;
  /** Webhooks may go to http://localhost. Default true; a subscription that may not is refused. */
  readonly allowLoopbackWebhooks?: boolean;
  /** For how long a stream remembers idempotency keys, unless it was created otherwise. Default 86,400. */
  readonly keyWindowSeconds?: number;
  /** How many idempotency keys a stream remembers, unless it was created otherwise. Default 100,000. */
  readonly keyMax?: number;
  /** What a new key meets in a full window, unless the stream was created otherwise. Default `evict`. */
  readonly keyOverflow?: KeyOverflow;
  /**
   * Adds `headers.offset` to records of the State protocol in every read, as some servers do. Default false:
   * records come back byte for byte, except for readers that ask with `state-offsets=true`.
   */
  readonly stateOffsets?: boolean;
  /** Enables `/_test/inject-error`. Never in production. Default false. */
  readonly testFaults?: boolean;
}

/** The settings in force, with every default filled in. */
export type ResolvedSettings = Required<ServerSettings>;

const RANGES = {
  longPollMs: [1, 600_000],
  bodyMaxBytes: [1, 1024 * 1024 * 1024],
  sseMaxSeconds: [1, 86_400],
  readerStallMs: [1, 3_600_000],
  readerBufferBytes: [1024, 1024 * 1024 * 1024],
  answersMaxBytes: [LIMITS.pageBytesMax, Number.MAX_SAFE_INTEGER],
  keyWindowSeconds: [1, LIMITS.keyWindowSecondsMax],
  keyMax: [1, LIMITS.keyCountMax],
} as const satisfies Partial<Record<keyof ServerSettings, readonly [number, number]>>;

/** All problems are reported together, each with the field, the value and what is allowed. */
export function resolveSettings(settings: ServerSettings = {}): ResolvedSettings {
  const resolved: ResolvedSettings = Object.freeze({
    longPollMs: settings.longPollMs ?? LIMITS.longPollMs,
    bodyMaxBytes: settings.bodyMaxBytes ?? LIMITS.bodyBytesMax,
    sseMaxSeconds: settings.sseMaxSeconds ?? LIMITS.sseMaxSeconds,
    readerStallMs: settings.readerStallMs ?? LIMITS.readerStallMs,
    readerBufferBytes: settings.readerBufferBytes ?? LIMITS.readerBufferBytesMax,
    answersMaxBytes: settings.answersMaxBytes ?? LIMITS.answersBytesMax,
    allowLoopbackWebhooks: settings.allowLoopbackWebhooks ?? true,
    keyWindowSeconds: settings.keyWindowSeconds ?? KEY_DEFAULTS.windowSeconds,
    keyMax: settings.keyMax ?? KEY_DEFAULTS.countMax,
    keyOverflow: settings.keyOverflow ?? KEY_DEFAULTS.overflow,
    stateOffsets: settings.stateOffsets ?? false,
    testFaults: settings.testFaults ?? false,
  });
  const check = new SettingsCheck();
  for (const [name, [min, max]] of Object.entries(RANGES)) {
    const value = resolved[name as keyof typeof RANGES];
    if (!Number.isSafeInteger(value) || value < min || value > max) {
      check.problem(`${name}=${value} is not a whole number from ${min} to ${max}`);
    }
  }
  if (resolved.keyOverflow !== "evict" && resolved.keyOverflow !== "reject") {
    check.problem(`keyOverflow=${String(resolved.keyOverflow)} is neither evict nor reject`);
  }
  check.end();
  return resolved;
}
