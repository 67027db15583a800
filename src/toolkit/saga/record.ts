/**
 * The entry of a saga: its place, and the format of its data.
 *
 *   byte 0   the version of the format: 1
 *   rest     JSON: the progress of the saga (toolkit/rules/saga-plan.ts)
 *
 *   - the scope of the entry is `<saga>/<scope>`: the name of a saga has no slash, so the first one ends it.
 */

import { HapaxError } from "../../base/errors.ts";
import type { Place } from "../ledgers/ledger.ts";
import { Check } from "../once/check.ts";
import type { SagaProgress } from "../rules/saga-plan.ts";
import type { ScopedKey } from "../rules/scoped-key.ts";
import { SAGA_BYTES_MAX, SAGA_ROOM_BYTES, SAGA_SHORT_CHARS, SAGA_SHORT_MOMENTS } from "./limits.ts";

/** The kind of the entries of sagas. */
export const SAGA_KIND = "saga";

/** Names one saga: its definition, and the identity with which it was started. */
export interface SagaRef extends ScopedKey {
  /** The name of its definition. */
  readonly saga: string;
}

const VERSION = 1;
const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

export function placeOfSaga(saga: string, given: ScopedKey): Place {
  const check = new Check();
  const { scope, key } = check.identity(given);
  check.name("scope", `${saga}/${scope}`);
  check.end("invalid_request");
  return { kind: SAGA_KIND, scope: `${saga}/${scope}`, key };
}

export function refOfPlace({ scope, key }: Place): SagaRef {
  const slash = scope.indexOf("/");
  return { saga: scope.slice(0, slash), scope: scope.slice(slash + 1), key };
}

/**
 * Encodes a saga. SA6: its progress can always be written, so a history without room is shortened. `bringsValue`: the
 * write brings a result, an input or a payload; it throws `invalid_request` if the saga has no room for that.
 */
export function encodeSaga(progress: SagaProgress, bringsValue = false): Uint8Array {
  let json = encoder.encode(JSON.stringify(progress));
  if (bringsValue) requireRoom(json, SAGA_BYTES_MAX);
  const most = SAGA_BYTES_MAX + SAGA_ROOM_BYTES;
  if (json.length >= most) json = encoder.encode(JSON.stringify(shortened(progress)));
  requireRoom(json, most);
  const bytes = new Uint8Array(1 + json.length);
  bytes[0] = VERSION;
  bytes.set(json, 1);
  return bytes;
}

function requireRoom({ length }: Uint8Array, max: number): void {
  if (length < max) return;
  const facts = `bytes=${length} max=${max}`;
  throw new HapaxError("invalid_request", `the saga is too large to be kept; ${facts}`);
}

/** Returns the same saga with only the first and last moments of its history, and the beginnings of error texts. */
function shortened(progress: SagaProgress): SagaProgress {
  const cut = (text: string): string => text.slice(0, SAGA_SHORT_CHARS);
  const { history, steps } = progress;
  const moments = [
    ...history.slice(0, SAGA_SHORT_MOMENTS),
    ...history.slice(Math.max(SAGA_SHORT_MOMENTS, history.length - SAGA_SHORT_MOMENTS)),
  ];
  const shorter = Object.entries(steps).map(([name, { failure, ...step }]) => [
    name,
    failure === undefined
      ? step
      : { ...step, failure: { name: cut(failure.name), message: cut(failure.message) } },
  ]);
  return {
    ...progress,
    // Cast: each step has its own entry again.
    steps: Object.fromEntries(shorter) as SagaProgress["steps"],
    history: moments.map(({ note, ...moment }) =>
      note === undefined ? moment : { ...moment, note: cut(note) },
    ),
  };
}

export function decodeSaga(data: Uint8Array | undefined): SagaProgress {
  if (data?.[0] !== VERSION)
    throw new HapaxError("schema_newer", `a saga of another version; version=${data?.[0]}`);
  return JSON.parse(decoder.decode(data.subarray(1))) as SagaProgress;
}
