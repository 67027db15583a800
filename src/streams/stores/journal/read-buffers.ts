/**
 * Reuses memory for pages. A new megabyte for every page would be the main load of the garbage collector in a server
 * that reads old data (decision 0017).
 *
 *   - a buffer is handed out again only after its user has given it back, and only once for each time.
 */

import { assert } from "../../../base/assert.ts";

/** Room for a page of the usual limit with the bytes between its records. Only the touched part takes memory. */
const BUFFER_BYTES = 2 * 1024 * 1024;
/** A smaller read needs no buffer of its own. */
const LEAST_BYTES = 128 * 1024;
const SPARES_MAX = 8;

export class ReadBuffers {
  readonly #spares: Buffer[] = [];
  // Weak: the garbage collector frees a page that is not given back.
  readonly #lent = new WeakSet<Buffer>();

  /** Returns memory for so many bytes. Undefined: the caller allocates it as usual. */
  take(bytes: number): Buffer | undefined {
    if (bytes < LEAST_BYTES || bytes > BUFFER_BYTES) return undefined;
    const buffer = this.#spares.pop() ?? Buffer.allocUnsafeSlow(BUFFER_BYTES);
    this.#lent.add(buffer);
    return buffer;
  }

  /** Takes a buffer back. The caller must not use its bytes afterwards. */
  give(buffer: Buffer): void {
    if (!this.#lent.delete(buffer)) return;
    assert(!this.#spares.includes(buffer), "a lent buffer is spare too: two pages would share it");
    if (this.#spares.length < SPARES_MAX) this.#spares.push(buffer);
  }
}
