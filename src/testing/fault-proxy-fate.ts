/**
 * What befalls the n-th request at the fault proxy: drawn from the seed and n, or chosen by the test. What each of
 * these does to the request is in fault-proxy.ts.
 */

import { HapaxError } from "../base/errors.ts";
import { createSeededRandom } from "./seeded-random.ts";

/** An answer that the proxy makes up in the server's name. */
export interface MadeUpAnswer {
  readonly status: number;
  /** The value of `Retry-After`. */
  readonly retryAfter?: string;
}

/**
 * What can go wrong with one request. Those that end in `Requests` are met on the way to the server, which never
 * acts on the request; those in `Answers` on the way back, when the server has acted and answered.
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

/** How often what goes wrong. Shares are from 0 to 1, and 0 unless they are given. */
export interface FaultShares {
  /** The connection ends before the server has seen the request. */
  readonly dropRequests?: number;
  /** The connection ends when the server has answered. */
  readonly dropAnswers?: number;
  /** The server gets the head and a part of the body, then both connections end. */
  readonly cutRequests?: number;
  /** The client gets the head and a part of the body; of an answer without a body, a part of the head. */
  readonly cutAnswers?: number;
  /** Half-open: the server has not seen the request, and the connection stays open and silent for ever. */
  readonly silenceRequests?: number;
  /** Half-open: the server has answered, and the connection stays open and silent for ever. */
  readonly silenceAnswers?: number;
  /** The proxy answers with one of `refusals`, and the server has not seen the request. */
  readonly refuseRequests?: number;
  /** The server has answered, and the client is told one of the `refusals` from 500 on. */
  readonly refuseAnswers?: number;
  /** Held back for up to `delayMsMax` on the way to the server. Beside the harms above, as all below. */
  readonly delayRequests?: number;
  /** Held back for up to `delayMsMax` on the way back. */
  readonly delayAnswers?: number;
  /** Held back until the server has answered a later one, for `delayMsMax` at most. */
  readonly reorderRequests?: number;
  /** Sent twice, the second time up to `delayMsMax` later; the client hears one of both answers. Not `GET`. */
  readonly duplicateRequests?: number;
}

/** A request, as a test can choose its fate by. */
export interface ProxiedRequest {
  /** 1 is the first of the proxy. */
  readonly number: number;
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
}

/** What becomes of one request. Nothing goes wrong unless it says so. */
export interface ProxyFate {
  readonly harm?: Harm;
  /** What is told if the harm is a refusal. Default: 503. */
  readonly refusal?: MadeUpAnswer;
  /** The share of the body that passes if the harm is a cut, from 0 to below 1. Default 0.5. */
  readonly passedShare?: number;
  readonly delayMs?: number;
  readonly answerDelayMs?: number;
  /** Held back until the server has answered a later request, for so many milliseconds at most. */
  readonly overtakenMsMax?: number;
  /** A copy is sent so many milliseconds after it. */
  readonly copyAfterMs?: number;
  /** The client hears the answer to the copy. */
  readonly hearsCopy?: boolean;
}

/** Settings of a fault proxy: the seed, what goes wrong, and how often. */
export interface FaultProxySettings extends FaultShares {
  readonly seed: number;
  /** Default 20. */
  readonly delayMsMax?: number;
  /** Default: 500, 502, 503, 504, and 503 and 429 with `Retry-After: 0`. */
  readonly refusals?: readonly MadeUpAnswer[];
  /** Chooses a fate; `undefined` leaves it to the seed. */
  readonly fateOf?: (request: ProxiedRequest) => ProxyFate | undefined;
}

/** How many requests met what. */
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

/** By which name a harm is counted. */
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

/** Nothing has happened yet. */
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

/** In the order in which one number is compared with their shares. */
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

/** Throws `invalid_settings` for shares that cannot be kept together. */
export function checkShares(settings: FaultProxySettings): void {
  const shares = HARMS.map((harm) => settings[harm] ?? 0);
  const sum = shares.reduce((total, share) => total + share, 0);
  if (shares.some((share) => !(share >= 0)) || sum > 1 + 1e-9) {
    const names = HARMS.filter((harm) => settings[harm] !== undefined).join(", ");
    const message = `a request meets one harm at most: the shares of ${names} are ${String(sum)} together`;
    throw new HapaxError("invalid_settings", message);
  }
}

/** FX1. */
export function drawFate(settings: FaultProxySettings, number: number): ProxyFate {
  // A source of its own for each request: what is drawn for one changes nothing for the next.
  const random = createSeededRandom(
    Math.imul(settings.seed, 0x9e3779b1) + Math.imul(number, 0x85ebca6b),
  );
  const { delayMsMax = 20, refusals = DEFAULT_REFUSALS } = settings;
  const someMs = (): number => 1 + random.below(delayMsMax);
  const meets = (share = 0): boolean => random.unit() < share;
  const harm = drawHarm(settings, random.unit());
  const told = refusals.filter(({ status }) => harm === "refuseRequests" || status >= 500);
  const refusal = told[random.below(told.length)];
  return {
    ...(harm === undefined ? {} : { harm, passedShare: random.unit() }),
    ...(refusal === undefined ? {} : { refusal }),
    ...(meets(settings.delayRequests) ? { delayMs: someMs() } : {}),
    ...(meets(settings.delayAnswers) ? { answerDelayMs: someMs() } : {}),
    ...(meets(settings.reorderRequests) ? { overtakenMsMax: delayMsMax } : {}),
    ...(meets(settings.duplicateRequests)
      ? { copyAfterMs: someMs() - 1, hearsCopy: random.below(2) === 0 }
      : {}),
  };
}

function drawHarm(settings: FaultProxySettings, unit: number): Harm | undefined {
  let reached = 0;
  return HARMS.find((harm) => {
    reached += settings[harm] ?? 0;
    return unit < reached;
  });
}
