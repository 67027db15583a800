/** What the tools that verify a store find, wherever it is kept. */

import type { StoreProblem } from "./problem.ts";

export interface Verification {
  readonly problems: number;
  /** Why a server would not start on it, if so. */
  readonly refusal: string | undefined;
  readonly torn: { readonly file: string; readonly position: number } | undefined;
  readonly segments: number;
  readonly frames: number;
  readonly records: number;
  readonly snapshots: number;
  readonly blocks: number;
  readonly streams: number;
  readonly extents: number;
  readonly bytes: number;
  /** False if the journal cannot be replayed. Then there is no index to check. */
  readonly isIndexChecked: boolean;
  /** LSN of the next frame, as far as can be seen. */
  readonly nextLsn: number;
}

export interface VerificationEvents {
  readonly onProblem: (problem: StoreProblem) => Promise<void>;
  readonly onProgress: (bytes: number, bytesTotal: number) => Promise<void>;
}
