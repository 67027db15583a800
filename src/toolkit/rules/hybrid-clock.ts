/**
 * The hybrid logical clock: stamps that order writes of many nodes whose wall clocks disagree.
 *
 *   HC1  a stamp is greater than every stamp that its clock has made or seen before: what happened later is later;
 *   HC2  it is near the wall clock: never ahead of the greatest wall clock among the nodes that the clock has heard of;
 *   HC3  stamps are texts that compare byte by byte, in the same way everywhere; the node decides between equal times.
 *
 * A stamp is `<milliseconds>-<counter>-<node>`: twelve and eight hexadecimal digits, and a name. Pure.
 */

/** What a clock knows: the greatest time that it has made or seen. */
export interface HybridTime {
  /** Milliseconds since 1970. */
  readonly ms: number;
  /** Stamps of the same millisecond, in their order. */
  readonly counter: number;
}

export const NO_HYBRID_TIME: HybridTime = { ms: 0, counter: 0 };

/** Twelve hexadecimal digits: the year 10,889. */
const MS_MAX = 2 ** 48 - 1;
/** Eight hexadecimal digits. */
const COUNTER_MAX = 2 ** 32 - 1;
const STAMP = /^([0-9a-f]{12})-([0-9a-f]{8})-([A-Za-z0-9_.-]{1,64})$/;
const NODE = /^[A-Za-z0-9_.-]{1,64}$/;

/** Returns whether a text can be the name of a node: its order is the same everywhere. */
export function isNodeName(text: string): boolean {
  return NODE.test(text);
}

/** HC1: returns the time after all that the clock has made or seen. */
export function tickHybrid({ ms, counter }: HybridTime, wallMs: number): HybridTime {
  const nowMs = Math.min(Math.max(0, Math.floor(wallMs)), MS_MAX);
  if (nowMs > ms) return { ms: nowMs, counter: 0 };
  return counter < COUNTER_MAX ? { ms, counter: counter + 1 } : { ms: ms + 1, counter: 0 };
}

/** HC1: returns what a clock knows after it has seen the time of another. */
export function seeHybrid(own: HybridTime, seen: HybridTime): HybridTime {
  const isLater = seen.ms > own.ms || (seen.ms === own.ms && seen.counter > own.counter);
  return isLater ? seen : own;
}

/** HC3 */
export function encodeStamp({ ms, counter }: HybridTime, node: string): string {
  const time = ms.toString(16).padStart(12, "0");
  return `${time}-${counter.toString(16).padStart(8, "0")}-${node}`;
}

/** Returns the time of a stamp; undefined if the text is none. */
export function parseStamp(text: string): HybridTime | undefined {
  const [, ms, counter] = STAMP.exec(text) ?? [];
  if (ms === undefined || counter === undefined) return undefined;
  return { ms: Number.parseInt(ms, 16), counter: Number.parseInt(counter, 16) };
}

/** Says that a time is further ahead of a wall clock than it may be; undefined if it is not. */
export function problemOfAhead(
  { ms }: HybridTime,
  wallMs: number,
  aheadMsMax: number,
): string | undefined {
  const aheadMs = ms - wallMs;
  if (aheadMs <= aheadMsMax) return undefined;
  return `the stamp is too far ahead of this node's clock; aheadMs=${aheadMs} aheadMsMax=${aheadMsMax}`;
}

/** What becomes of a write with a stamp. `duplicate`: this very write was applied before. */
export type NewerDecision = "applied" | "duplicate" | "older";

/** HC3: the last write wins, by its stamp. */
export function decideNewer(present: string | undefined, stamp: string): NewerDecision {
  if (present === undefined || stamp > present) return "applied";
  return stamp === present ? "duplicate" : "older";
}
