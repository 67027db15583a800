/** What the tools for a directory say of damage: where it is, what it is, and what follows from it. */

export type ProblemKind =
  | "store"
  | "chain"
  | "shortened"
  | "missing_end"
  | "header_copy"
  | "header"
  | "missing_segment"
  | "frames"
  | "record"
  | "snapshot"
  | "data"
  | "index"
  | "refused";

export interface Problem {
  readonly kind: ProblemKind;
  readonly file: string;
  readonly offset: number;
  readonly lsn: number | undefined;
  readonly what: string;
  /** What follows from it, for who runs the server. */
  readonly meaning: string;
  /** The server does not start because of it. */
  readonly stopsServer: boolean;
}

/** A problem that is not tied to a frame, and that the server starts with, says so by saying nothing. */
export function problemOf(
  parts: Omit<Problem, "lsn" | "stopsServer"> & Partial<Pick<Problem, "lsn" | "stopsServer">>,
): Problem {
  return { lsn: undefined, stopsServer: false, ...parts };
}
