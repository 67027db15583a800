/**
 * Who an append says it is: a producer with an epoch, a producer with a session, or a key. The server tells
 * a retry from a new write by it. PROTOCOL.md §5, §14, §16.
 */

import {
  IDEMPOTENCY_KEY,
  PRODUCER_EPOCH,
  PRODUCER_ID,
  PRODUCER_SEQ,
  PRODUCER_SESSION,
} from "../protocol/header-names.ts";
import { encodeKey } from "../protocol/idempotency-key.ts";
import { LIMITS } from "../protocol/all-limits.ts";
import { parseCountOption, quote } from "./arguments.ts";
import type { Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { usageFailure } from "./failure.ts";

export type AppendIdentity =
  | { readonly kind: "epoch"; readonly producerId: string; readonly epoch: number }
  | { readonly kind: "session"; readonly producerId: string; readonly session: string }
  | { readonly kind: "key"; readonly key: string };

/** The identity that the options name; without one, a random producer. */
export function chooseIdentity(invocation: Invocation, context: Context): AppendIdentity {
  const key = invocation.value("key");
  const session = invocation.value("session");
  const producer = invocation.value("producer");
  if (key !== undefined) {
    for (const name of ["producer", "epoch", "session"]) {
      if (invocation.value(name) !== undefined) {
        throw usageFailure(`--key and --${name} exclude each other: an append has one identity`);
      }
    }
    return { kind: "key", key: checkKey(key) };
  }
  if (session !== undefined) {
    if (invocation.value("epoch") !== undefined) {
      throw usageFailure("--session and --epoch exclude each other: the server numbers sessions");
    }
    if (producer === undefined) throw usageFailure("--session needs --producer");
    return {
      kind: "session",
      producerId: checkProducerOption("producer", producer),
      session: checkSession(session),
    };
  }
  const range = { min: 0, max: Number.MAX_SAFE_INTEGER, fallback: 0 };
  const epoch = parseCountOption("epoch", invocation.value("epoch"), range);
  const producerId =
    producer === undefined
      ? `hapax-${context.random.id()}`
      : checkProducerOption("producer", producer);
  return { kind: "epoch", producerId, epoch };
}

/** The headers of the append with this number; a key has no numbers. */
export function identityHeaders(
  identity: AppendIdentity,
  sequence: number,
): Record<string, string> {
  switch (identity.kind) {
    case "key":
      return { [IDEMPOTENCY_KEY]: encodeKey(identity.key) ?? "" };
    case "session":
      return {
        [PRODUCER_ID]: identity.producerId,
        [PRODUCER_SESSION]: identity.session,
        [PRODUCER_SEQ]: String(sequence),
      };
    case "epoch":
      return {
        [PRODUCER_ID]: identity.producerId,
        [PRODUCER_EPOCH]: String(identity.epoch),
        [PRODUCER_SEQ]: String(sequence),
      };
  }
}

/** What a later run must add to the same command for the same identity; nothing if it was named already. */
export function identityOption(
  invocation: Invocation,
  identity: AppendIdentity,
): string | undefined {
  if (identity.kind !== "epoch" || invocation.value("producer") !== undefined) return undefined;
  return `--producer ${identity.producerId}`;
}

/** As a header can carry it: fetch would trim spaces at the ends, and has no letters beyond Latin-1. */
const SENDABLE_ID = /^(?! )[ -~\u00a1-\u00ff]+(?<! )$/;

/** An id as headers can carry it, or a failure that names the option. */
export function checkProducerOption(option: string, id: string): string {
  if (id === "") throw usageFailure(`--${option} is empty`);
  if (!SENDABLE_ID.test(id) || id.length > LIMITS.producerIdBytesMax) {
    const allowed = `1 to ${String(LIMITS.producerIdBytesMax)} printable Latin-1 characters`;
    throw usageFailure(`--${option} is ${quote(id)}; allowed: ${allowed}, no space at the ends`);
  }
  return id;
}

function checkKey(key: string): string {
  if (encodeKey(key) !== undefined) return key;
  const allowed = `1 to ${String(LIMITS.keyBytesMax)} characters from space to ~`;
  throw usageFailure(`--key is ${quote(key)}; allowed: ${allowed}`);
}

function checkSession(nonce: string): string {
  if (/^[\w.~-]+$/.test(nonce) && nonce.length <= LIMITS.sessionBytesMax) return nonce;
  const allowed = `1 to ${String(LIMITS.sessionBytesMax)} letters, digits, - . _ or ~`;
  throw usageFailure(`--session is ${quote(nonce)}; allowed: ${allowed}`);
}

/** Bare where a shell takes it so, else in single quotes. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}
