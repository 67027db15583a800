/** Encodes inputs, results and payloads of sagas as JSON. */

import { HapaxError } from "../../base/errors.ts";
import { exactJson } from "../../base/exact-json.ts";
import type { SagaProgress } from "../rules/saga-plan.ts";
import { SAGA_RESULT_BYTES_MAX } from "./limits.ts";

const encoder = new TextEncoder();

/** Returns the JSON of a value; undefined for undefined. Throws `invalid_request` for a value that JSON cannot keep unchanged. */
export function jsonOf(value: unknown, what = "result"): string | undefined {
  if (value === undefined) return undefined;
  const json = exactJson(value, what);
  if (!("text" in json))
    throw new HapaxError("invalid_request", `${json.path} ${json.problem}: it cannot be kept`);
  const bytes = encoder.encode(json.text).length;
  if (bytes <= SAGA_RESULT_BYTES_MAX) return json.text;
  const facts = `bytes=${bytes} max=${SAGA_RESULT_BYTES_MAX}`;
  throw new HapaxError("invalid_request", `the ${what} is too large to be kept; ${facts}`);
}

export function parsed(json: string | undefined): unknown {
  return json === undefined ? undefined : JSON.parse(json);
}

/** Returns the results of the steps that are done, or were done before their undo, by name. */
export function resultsOf({ steps }: SagaProgress): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    Object.entries(steps)
      .filter(([, { outcome }]) => outcome === "done")
      .map(([name, { result }]) => [name, parsed(result)]),
  );
}
