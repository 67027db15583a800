/**
 * `traceparent` and `tracestate` of the W3C Trace Context, read strictly: a value that is not exactly its grammar is as if it had
 * not been sent. A request is never refused for it. PROTOCOL.md §22.2.
 *
 *   traceparent = version "-" trace-id "-" parent-id "-" flags, hexadecimal digits in lower case
 *   tracestate  = 1*32 members with commas between, at most 512 characters, no key twice
 */

export interface ReceivedTrace {
  readonly traceId: string;
  readonly spanId: string;
  readonly flags: number;
  readonly state?: string;
}

// A later version may have more behind the flags, after another dash.
const TRACEPARENT = /^([\da-f]{2})-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})(-.*)?$/;
const NO_TRACE = "0".repeat(32);
const NO_SPAN = "0".repeat(16);
const STATE_CHARACTERS_MAX = 512;
const STATE_MEMBERS_MAX = 32;
const STATE_MEMBER =
  /^([a-z][a-z\d_*/-]{0,255}|[a-z\d][a-z\d_*/-]{0,240}@[a-z][a-z\d_*/-]{0,13})=([ -+\x2d-<>-~]{0,255}[!-+\x2d-<>-~])$/;

export function parseTrace(
  parent: string | undefined,
  state: string | undefined,
): ReceivedTrace | undefined {
  if (parent === undefined || parent.length > STATE_CHARACTERS_MAX) return undefined;
  const match = TRACEPARENT.exec(parent);
  if (match === null) return undefined;
  const [, version = "", traceId = "", spanId = "", flags = "", more] = match;
  if (version === "ff" || (version === "00" && more !== undefined)) return undefined;
  if (traceId === NO_TRACE || spanId === NO_SPAN) return undefined;
  const trace = { traceId, spanId, flags: Number.parseInt(flags, 16) };
  const known = state === undefined ? undefined : checkState(state);
  return known === undefined ? trace : { ...trace, state: known };
}

function checkState(text: string): string | undefined {
  if (text.length > STATE_CHARACTERS_MAX) return undefined;
  const members = text
    .split(",")
    .map((member) => member.trim())
    .filter((member) => member !== "");
  const keys = members.map((member) => STATE_MEMBER.exec(member)?.[1]);
  const isGood = members.length > 0 && members.length <= STATE_MEMBERS_MAX;
  if (!isGood || keys.includes(undefined) || new Set(keys).size < keys.length) return undefined;
  return members.join(",");
}
