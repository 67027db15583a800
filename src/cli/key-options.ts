/** How a stream remembers idempotency keys, on the command line and in answers. PROTOCOL.md §16.1. */

import {
  STREAM_KEY_FROM,
  STREAM_KEY_MAX,
  STREAM_KEY_OVERFLOW,
  STREAM_KEY_WINDOW,
} from "../protocol/header-names.ts";
import { LIMITS } from "../protocol/limits.ts";
import { parseCountOption, quote } from "./arguments.ts";
import type { Invocation, OptionSpec } from "./command.ts";
import { usageFailure } from "./failure.ts";
import type { CliAnswer } from "./http.ts";
import { formatCount } from "./terminal.ts";

/** Options of `create`. */
export const KEY_OPTIONS: readonly OptionSpec[] = [
  { name: "key-window", value: "seconds", help: "for how many seconds the stream remembers a key" },
  { name: "key-max", value: "count", help: "how many keys the stream remembers" },
  {
    name: "key-overflow",
    value: "evict|reject",
    help: "when there are more: forget the oldest, or refuse the new one",
  },
  {
    name: "key-from",
    value: "content",
    help: "use the content of an append without an identity as its key",
  },
];

/** The headers that the options mean. */
export function keyOptionHeaders(invocation: Invocation): Record<string, string> {
  const headers: Record<string, string> = {};
  const count = (name: string, max: number): void => {
    const text = invocation.value(name);
    if (text === undefined) return;
    headers[`stream-${name}`] = String(parseCountOption(name, text, { min: 1, max, fallback: 1 }));
  };
  const oneOf = (name: string, allowed: readonly string[]): void => {
    const text = invocation.value(name);
    if (text === undefined) return;
    if (!allowed.includes(text)) {
      throw usageFailure(`--${name} is ${quote(text)}; allowed: ${allowed.join(", ")}`);
    }
    headers[`stream-${name}`] = text;
  };
  count("key-window", LIMITS.keyWindowSecondsMax);
  count("key-max", LIMITS.keyCountMax);
  oneOf("key-overflow", ["evict", "reject"]);
  oneOf("key-from", ["content"]);
  return headers;
}

interface KeyFacts {
  readonly keyWindowSeconds?: number;
  readonly keyMax?: number;
  readonly keyOverflow?: string;
  readonly keyFrom?: string;
}

/** What an answer says about keys: those options that the stream was given. */
export function keyFacts(answer: CliAnswer): KeyFacts {
  const window = answer.header(STREAM_KEY_WINDOW);
  const countMax = answer.header(STREAM_KEY_MAX);
  const overflow = answer.header(STREAM_KEY_OVERFLOW);
  const from = answer.header(STREAM_KEY_FROM);
  return {
    ...(window === undefined ? {} : { keyWindowSeconds: Number(window) }),
    ...(countMax === undefined ? {} : { keyMax: Number(countMax) }),
    ...(overflow === undefined ? {} : { keyOverflow: overflow }),
    ...(from === undefined ? {} : { keyFrom: from }),
  };
}

/** The same for people. */
export function keyPairs(answer: CliAnswer): [string, string][] {
  const { keyWindowSeconds, keyMax, keyOverflow, keyFrom } = keyFacts(answer);
  const pairs: [string, string][] = [];
  if (keyWindowSeconds !== undefined)
    pairs.push(["keys kept for", `${String(keyWindowSeconds)} s`]);
  if (keyMax !== undefined) pairs.push(["keys kept", `at most ${formatCount(keyMax)}`]);
  if (keyOverflow !== undefined) pairs.push(["further keys", overflowWords(keyOverflow)]);
  if (keyFrom !== undefined) pairs.push(["keys from", keyFrom]);
  return pairs;
}

function overflowWords(overflow: string): string {
  if (overflow === "evict") return "evict: the oldest is forgotten";
  return overflow === "reject" ? "reject: the new one is refused" : overflow;
}
