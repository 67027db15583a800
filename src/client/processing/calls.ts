/**
 * Makes one call to the server whose whole answer counts, also its body.
 *
 *   - an answer whose body was cut does not count: the same call is sent again, within the time of all attempts;
 *   - a refusal keeps the other members of the answer beside its code: the operation, and the streams.
 */

import { HapaxError } from "../../base/errors.ts";
import { type Call, Caller, answeredRefusal } from "../attempt.ts";
import { decodeText } from "../../base/bytes.ts";
import type { ClientRetry } from "../options.ts";
import type { ClientAnswer } from "../transport.ts";
import { wholeAnswers } from "../whole-answers.ts";

/** A whole answer. */
export interface SettledCall {
  readonly status: number;
  readonly text: string;
  /** By its name, in any case. */
  header(name: string): string | undefined;
  /** An earlier attempt may have been done. */
  readonly wasUnknown: boolean;
  /** The refusal, if the answer is one. */
  readonly refusal: CallRefusal | undefined;
}

/** The refusal of a call. */
export interface CallRefusal {
  readonly error: HapaxError;
  /** Other members of the answer: `operation`, `streams`. */
  readonly members: ReadonlyMap<string, unknown>;
}

/** Rejects with `unreachable` if no answer came in time, and with the reason of the signal. */
export async function settleCall(caller: Caller, call: Call): Promise<SettledCall> {
  const { options } = caller;
  const transport = wholeAnswers(options.transport);
  const { answer, wasUnknown } = await new Caller({ ...options, transport }).untilAnswered(call);
  return whole(answer, wasUnknown);
}

/** Returns the same caller with other retry options. */
export function withRetry(caller: Caller, retry: ClientRetry): Caller {
  const { options } = caller;
  return new Caller({ ...options, retry: { ...options.retry, ...retry } });
}

async function whole(answer: ClientAnswer, wasUnknown: boolean): Promise<SettledCall> {
  const { status } = answer;
  const bytes = await answer.bytes();
  const text = decodeText(bytes);
  const header = (name: string): string | undefined => answer.header(name.toLowerCase());
  if (status >= 200 && status < 300) {
    return { status, text, header, wasUnknown, refusal: undefined };
  }
  const heard = { ...answer, status, header, bytes: () => Promise.resolve(bytes) };
  const { error, isOurs } = await answeredRefusal(heard);
  const isForeign = !isOurs && [400, 404, 405, 501].includes(status);
  const refusal = {
    error: isForeign
      ? new HapaxError("unsupported", `the server has no transactions and groups: ${error.message}`)
      : error,
    members: memberMapOf(text),
  };
  // If the last answer is a 5xx, the call may have been done.
  return { status, text, header, wasUnknown: wasUnknown || status >= 500, refusal };
}

/** Returns the members of a JSON object; an empty map for any other text. */
export function memberMapOf(text: string): ReadonlyMap<string, unknown> {
  try {
    return mapOf(JSON.parse(text));
  } catch {
    return new Map(); // The caller that misses a member reports it.
  }
}

/** Returns the members of an object of unknown type. */
export function mapOf(value: unknown): ReadonlyMap<string, unknown> {
  const isObject = typeof value === "object" && value !== null;
  return new Map<string, unknown>(isObject ? Object.entries(value) : []);
}

/** Returns a list of unknown type; an empty one for any other value. */
export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? (value as readonly unknown[]) : [];
}

/** Returns the texts in a list of unknown type; other values are left out. */
export function textsOf(value: unknown): readonly string[] {
  return listOf(value).filter((one) => typeof one === "string");
}

/** Makes a JSON call to a route of groups. Returns the members of its answer; throws a refusal. */
export async function callJson(
  caller: Caller,
  call: Omit<Call, "body">,
  body?: unknown,
): Promise<ReadonlyMap<string, unknown>> {
  const settled = await settleCall(caller, jsonCall(call, body));
  if (settled.refusal !== undefined) throw settled.refusal.error;
  return memberMapOf(settled.text);
}

/** Returns the call with a JSON body. */
export function jsonCall(call: Omit<Call, "body">, body: unknown): Call {
  if (body === undefined) return call;
  const bytes = new TextEncoder().encode(JSON.stringify(body));
  const headers = { ...call.headers, "Content-Type": "application/json" };
  return { ...call, headers, body: bytes };
}
