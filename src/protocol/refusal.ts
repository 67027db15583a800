/**
 * A refusal on the wire: `application/problem+json` (RFC 9457) with our code, what to do next, and the facts. It also
 * carries the protocol's own headers. PROTOCOL.md §10.
 */

import { utf8Of } from "../base/bytes.ts";
import { ERRORS, type ErrorCode, HapaxError } from "../base/errors.ts";
import { SERVER_TITLES } from "../base/server-error-titles.ts";

export interface Refusal {
  readonly code: ErrorCode;
  readonly detail: string;
  /** Default: that of `SERVER_TITLES`. */
  readonly title?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Further members of the problem document, such as expected and received. */
  readonly facts?: Readonly<Record<string, unknown>>;
}

export const PROBLEM_TYPE = "application/problem+json";

const TITLES: Readonly<Partial<Record<ErrorCode, string>>> = SERVER_TITLES;

export function encodeProblem(refusal: Refusal): Uint8Array {
  const { status, help } = ERRORS[refusal.code];
  const { title = TITLES[refusal.code] ?? refusal.code } = refusal;
  const { code, detail, facts } = refusal;
  const type = `urn:hapax:error:${code}`;
  return utf8Of(JSON.stringify({ type, title, status, code, detail, help, ...facts }));
}

/** Makes the error of a parser: the field and what is wrong with it. */
export function invalid(field: string, problem: string): HapaxError {
  return new HapaxError("invalid_request", `${field} ${problem}`);
}
