/** Refusals as answers. Every handler refuses through here, so that every refusal looks the same. */

import { type ErrorCode, ERRORS, HapaxError, isHapaxError } from "../../base/errors.ts";
import { HEADER } from "../../protocol/headers.ts";
import { EncodingRefusal } from "../../protocol/content-encoding.ts";
import { encodeProblem, PROBLEM_TYPE, type Refusal } from "../../protocol/refusal.ts";
import { QuotaRefusal } from "../access/quota-refusal.ts";
import type { WholeAnswer } from "./exchange.ts";

/** Seconds that a client should wait before it repeats a call that may succeed later. */
const RETRY_AFTER_SECONDS = "1";

const CHALLENGE = 'Bearer realm="hapax"';
const CHALLENGES: Readonly<Partial<Record<ErrorCode, string>>> = {
  credential_expired: `${CHALLENGE}, error="invalid_token"`,
};

export function refuse(refusal: Refusal): WholeAnswer {
  const { status, retry } = ERRORS[refusal.code];
  const headers: Record<string, string> = {
    [HEADER.contentType]: PROBLEM_TYPE,
    [HEADER.cacheControl]: "no-store",
    ...refusal.headers,
  };
  if (status === 401) headers[HEADER.authenticate] = CHALLENGES[refusal.code] ?? CHALLENGE;
  if ((status === 429 || status >= 500) && retry === "later") {
    headers[HEADER.retryAfter] ??= RETRY_AFTER_SECONDS;
  }
  return { status, headers, body: encodeProblem(refusal), code: refusal.code };
}

export function problemAnswer(
  error: HapaxError,
  extra: Omit<Refusal, "code" | "detail"> = {},
): WholeAnswer {
  const headers = { ...wayOut(error), ...extra.headers };
  return refuse({ code: error.code, detail: detailOf(error), ...extra, headers });
}

/** What a client may read of an error. */
export function detailOf({ code, message }: HapaxError): string {
  return INSIDES[code] ?? message;
}

/** Errors that tell of files, processes and disks, which are the operator's: what clients get in their place. */
const INSIDES: Readonly<Partial<Record<ErrorCode, string>>> = {
  writes_stopped: "the server takes no writes until it is restarted",
  data_damaged: "stored data is damaged",
  directory_locked: "another process uses the stored data",
  shard_owned: "another server uses the stored data",
  engine_went_back: "the server takes no writes until an operator has looked at its database",
  directory_unusable: "the stored data cannot be used",
  format_unknown: "the stored data cannot be used",
};

/** Whether an error is one of the operator: no answer has its reason, so the log must. The engine itself reports that it has stopped. */
export function isInside({ code }: HapaxError): boolean {
  return code !== "writes_stopped" && Object.hasOwn(INSIDES, code);
}

/** What would be taken, or when the call is possible, if the refusal knows it. */
function wayOut(error: HapaxError): Readonly<Record<string, string>> {
  if (error instanceof EncodingRefusal) return { [HEADER.acceptEncoding]: error.accepted };
  if (!(error instanceof QuotaRefusal)) return {};
  return { [HEADER.retryAfter]: String(error.retryAfterSeconds) };
}

/** Whether an error is a refusal that this server knows. One of another version, or without a code, is a fault. */
export function isRefusal(error: unknown): error is HapaxError {
  return isHapaxError(error) && Object.hasOwn(ERRORS, error.code);
}

/** Makes the answer to an unexpected error: it shows the other side nothing of our insides. */
export function failureAnswer(error: unknown): WholeAnswer {
  if (isRefusal(error)) return problemAnswer(error);
  return refuse({ code: "internal", detail: "the server has logged the cause" });
}

export function methodNotAllowed(allow: string): WholeAnswer {
  return refuse({
    code: "method_not_allowed",
    detail: `this path takes ${allow}`,
    headers: { [HEADER.allow]: allow },
  });
}
