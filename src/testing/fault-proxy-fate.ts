/**
 * Decides what happens to the n-th request at the fault proxy: drawn from the seed and n, or chosen by the test.
 * fault-proxy.ts carries it out.
 */

import { HapaxError } from "../base/errors.ts";
import { createSeededRandom } from "./seeded-random.ts";

/** An answer that the proxy makes up in place of the server. */
export interface MadeUpAnswer {
  readonly status: number;
  /** The value of `Retry-After`. */
  readonly retryAfter?: string;
}

/**
 * What can go wrong with one request. Harms that end in `Requests` happen on the way to the server, which never acts
 * on the request. Harms that end in `Answers` happen on the way back, after the server has acted and answered.
 */
export type Harm =
  | "dropRequests"
  | "dropAnswers"
  | "cutRequests"
  | "cutAnswers"
  | "silenceRequests"
  | "silenceAnswers"
  | "refuseRequests"
  | "refuseAnswers";

/** How often things go wrong. Each is a share of the requests from 0 to 1. Default: 0. */
export interface FaultShares {
  /** The connection ends before the server sees the request. */
  readonly dropRequests?: number;
  /** The connection ends after the server has answered. */
  readonly dropAnswers?: number;
  /** The server gets the head and a part of the body, then both connections end. */
  readonly cutRequests?: number;
  /** The client gets the head and a part of the body. If the answer has no body, it gets a part of the head. */
  readonly cutAnswers?: number;
  /** Half-open: the server does not see the request, and the connection stays open and silent. */
  readonly silenceRequests?: number;
  /** Half-open: the server has answered, and the connection stays open and silent. */
  readonly silenceAnswers?: number;
  /** The proxy answers with one of `refusals`, and the server does not see the request. */
  readonly refuseRequests?: number;
  /** The server has answered, and the client gets one of the `refusals` with a status from 500 on. */
  readonly refuseAnswers?: number;
  /**
   * Delayed by up to `delayMsMax` on the way to the server. This and the following can come with one of the harms
   * above.
   */
  readonly delayRequests?: number;
  /** Delayed by up to `delayMsMax` on the way back. */
  readonly delayAnswers?: number;
  /** Held back until the server has answered a later request, for at most `delayMsMax`. */
  readonly reorderRequests?: number;
  /** Sent twice, the second time up to `delayMsMax` later. The client gets one of the two answers. Not for `GET`. */
  readonly duplicateRequests?: number;
}

/** A request. A test can choose its fate by these members. */
export interface ProxiedRequest {
  /** The first request of the proxy has number 1. */
  readonly number: number;
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
}

/** What happens to one request. Default: nothing goes wrong. */
export interface ProxyFate {
  readonly harm?: Harm;
  /** The answer if the harm is a refusal. Default: 503. */
  readonly refusal?: MadeUpAnswer;
  /** The share of the body that passes if the harm is a cut, from 0 to below 1. Default 0.5. */
  readonly passedShare?: number;
  readonly delayMs?: number;
  readonly answerDelayMs?: number;
  /** Held back until the server has answered a later request, for at most so many milliseconds. */
  readonly overtakenMsMax?: number;
  /** Sends a copy so many milliseconds after the request. */
  readonly copyAfterMs?: number;
  /** The client gets the answer to the copy. */
  readonly hearsCopy?: boolean;
}

/** Options of a fault proxy: the seed, what goes wrong, and how often. */
export interface FaultProxyOptions extends FaultShares {
  readonly seed: number;
  /** Longest delay in milliseconds. Default 20. */
  readonly delayMsMax?: number;
  /**
   * Answers that the proxy can give in the place of the server. Default: 500, 502, 503, 504, and 503 and 429
   * with `Retry-After: 0`.
   */
  readonly refusals?: readonly MadeUpAnswer[];
  /** Chooses the fate of a request. `undefined` leaves it to the seed. */
  readonly fateOf?: (request: ProxiedRequest) => ProxyFate | undefined;
}

/** The number of requests for each kind of fault. */
export interface FaultCounts {
  readonly droppedRequests: number;
  readonly droppedAnswers: number;
  readonly cutRequests: number;
  readonly cutAnswers: number;
  readonly silencedRequests: number;
  readonly silencedAnswers: number;
  readonly refusedRequests: number;
  readonly refusedAnswers: number;
  readonly delayedRequests: number;
  readonly delayedAnswers: number;
  readonly reorderedRequests: number;
  readonly duplicatedRequests: number;
}

/** The names under which harms are counted. */
export const COUNTED = {
  dropRequests: "droppedRequests",
  dropAnswers: "droppedAnswers",
  cutRequests: "cutRequests",
  cutAnswers: "cutAnswers",
  silenceRequests: "silencedRequests",
  silenceAnswers: "silencedAnswers",
  refuseRequests: "refusedRequests",
  refuseAnswers: "refusedAnswers",
} as const satisfies Record<Harm, keyof FaultCounts>;

/** Returns counts of zero. */
export function noCounts(): { -readonly [Name in keyof FaultCounts]: number } {
  return {
    droppedRequests: 0,
    droppedAnswers: 0,
    cutRequests: 0,
    cutAnswers: 0,
    silencedRequests: 0,
    silencedAnswers: 0,
    refusedRequests: 0,
    refusedAnswers: 0,
    delayedRequests: 0,
    delayedAnswers: 0,
    reorderedRequests: 0,
    duplicatedRequests: 0,
  };
}

/** The order in which one random number is compared with the shares. */
const HARMS: readonly Harm[] = [
  "dropRequests",
  "dropAnswers",
  "cutRequests",
  "cutAnswers",
  "silenceRequests",
  "silenceAnswers",
  "refuseRequests",
  "refuseAnswers",
];

const DEFAULT_REFUSALS: readonly MadeUpAnswer[] = [
  { status: 500 },
  { status: 502 },
  { status: 503 },
  { status: 504 },
  { status: 503, retryAfter: "0" },
  { status: 429, retryAfter: "0" },
];

/** Throws `invalid_options` for shares that do not fit together. */
export function checkShares(options: FaultProxyOptions): void {
  const shares = HARMS.map((harm) => options[harm] ?? 0);
  const sum = shares.reduce((total, share) => total + share, 0);
  if (shares.some((share) => !(share >= 0)) || sum > 1 + 1e-9) {
    const names = HARMS.filter((harm) => options[harm] !== undefined).join(", ");
    const message = `a request meets one harm at most: the shares of ${names} are ${String(sum)} together`;
    throw new HapaxError("invalid_options", message);
  }
}

export function drawFate(options: FaultProxyOptions, number: number): ProxyFate {
  // Each request has its own random source, so the draws for one do not change the next.
  const random = createSeededRandom(
    Math.imul(options.seed, 0x9e3779b1) + Math.imul(number, 0x85ebca6b),
  );
  const { delayMsMax = 20, refusals = DEFAULT_REFUSALS } = options;
  const someMs = (): number => 1 + random.below(delayMsMax);
  const meets = (share = 0): boolean => random.unit() < share;
  const harm = drawHarm(options, random.unit());
  const told = refusals.filter(({ status }) => harm === "refuseRequests" || status >= 500);
  const refusal = told[random.below(told.length)];
  return {
    ...(harm === undefined ? {} : { harm, passedShare: random.unit() }),
    ...(refusal === undefined ? {} : { refusal }),
    ...(meets(options.delayRequests) ? { delayMs: someMs() } : {}),
    ...(meets(options.delayAnswers) ? { answerDelayMs: someMs() } : {}),
    ...(meets(options.reorderRequests) ? { overtakenMsMax: delayMsMax } : {}),
    ...(meets(options.duplicateRequests)
      ? { copyAfterMs: someMs() - 1, hearsCopy: random.below(2) === 0 }
      : {}),
  };
}

function drawHarm(options: FaultProxyOptions, unit: number): Harm | undefined {
  let reached = 0;
  return HARMS.find((harm) => {
    reached += options[harm] ?? 0;
    return unit < reached;
  });
}
