/**
 * The incarnation of a store: how often its data went back in time, as after a restore from a backup. A number that grows with
 * each restore, and 32 random bits, because two restores of one backup have the same number. As text `1`, and `2-9ab1c3d4` after a
 * restore. The life of a stream ends in it: `4-2n9c`, and `4-2n9c~2-9ab1c3d4` after a restore. PROTOCOL.md §27.2.
 */

export interface Incarnation {
  /** 1 for a store that was never restored. */
  readonly number: number;
  /** Random bits; 0 for the first incarnation. */
  readonly mark: number;
}

/** Of a store whose data never went back. */
export const FIRST_INCARNATION: Incarnation = { number: 1, mark: 0 };

/** Between the life of a stream and the incarnation of its store. No other part of a life has it. */
const JOINT = "~";

export function formatIncarnation({ number, mark }: Incarnation): string {
  return number === 1 ? "1" : `${number}-${mark.toString(16).padStart(8, "0")}`;
}

/** Undefined for a text that names none. */
export function parseIncarnation(text: string): Incarnation | undefined {
  if (text === "1") return FIRST_INCARNATION;
  const [, number = "", mark = ""] = /^([1-9]\d{0,8})-([\da-f]{8})$/.exec(text) ?? [];
  if (number === "" || number === "1") return undefined;
  return { number: Number(number), mark: Number.parseInt(mark, 16) };
}

/** The life of a stream, in this incarnation of its store. The first one leaves no trace. */
export function lifeIn(life: string, incarnation: Incarnation): string {
  return incarnation.number === 1 ? life : life + JOINT + formatIncarnation(incarnation);
}

/** A life without its incarnation, and the incarnation as text. */
export function splitLife(life: string): readonly [life: string, incarnation: string] {
  const [own = "", incarnation = "1"] = life.split(JOINT);
  return [own, incarnation];
}

/** Whether two lives are of one stream, in two incarnations of its store: its data went back in between. */
export function isOtherIncarnation(one: string, other: string): boolean {
  return one !== other && splitLife(one)[0] === splitLife(other)[0];
}
