/** Types of size.mjs, for its test. */

export interface Bundle {
  readonly code: string;
  /** Paths of the sources that left something in it. */
  readonly modules: readonly string[];
  readonly imports: readonly string[];
  /** Gzipped. */
  readonly bytes: number;
}
export const PAGE_BYTES_MAX: number;
export const CLIENT_BYTES_MAX: number;
export function bundlePage(names?: readonly string[]): Promise<Bundle>;
export function bundle(entry: string): Promise<Bundle>;
