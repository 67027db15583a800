/** How the tools for a directory describe damage: where it is, what it is, and what it means. */

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

export interface StoreProblem {
  readonly kind: ProblemKind;
  readonly file: string;
  readonly offset: number;
  readonly lsn: number | undefined;
  readonly what: string;
  /** What it means for the operator of the server. */
  readonly meaning: string;
  /** The server does not start because of it. */
  readonly stopsServer: boolean;
}

/** Makes a problem. Default: it is not tied to a frame, and the server starts in spite of it. */
export function storeProblem(
  parts: Omit<StoreProblem, "lsn" | "stopsServer"> &
    Partial<Pick<StoreProblem, "lsn" | "stopsServer">>,
): StoreProblem {
  return { lsn: undefined, stopsServer: false, ...parts };
}
