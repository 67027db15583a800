/**
 * Memory for pages, used again: a new megabyte for every page makes the garbage collector run more often than
 * anything else that a server of old data does (decision 0017).
 *
 *   PB1  a buffer is handed out again only after its user has given it back, and once for each time that he did.
 */

/** A page of the usual limit with what stands between its records. Only the touched part of it takes memory. */
const BUFFER_BYTES = 2 * 1024 * 1024;
/** Less than this is not worth a buffer of its own. */
const LEAST_BYTES = 128 * 1024;
const SPARES_MAX = 8;

export class ReadBuffers {
  readonly #spares: Buffer[] = [];
  // Weak: a page that nobody gives back goes the way of all garbage.
  readonly #lent = new WeakSet<Buffer>();

  /** Memory for so many bytes, or nothing: then whoever reads allocates it as usual. */
  take(bytes: number): Buffer | undefined {
    if (bytes < LEAST_BYTES || bytes > BUFFER_BYTES) return undefined;
    const buffer = this.#spares.pop() ?? Buffer.allocUnsafeSlow(BUFFER_BYTES);
    this.#lent.add(buffer);
    return buffer;
  }

  /** Nobody looks at its bytes any more. */
  give(buffer: Buffer): void {
    if (!this.#lent.delete(buffer)) return;
    if (this.#spares.length < SPARES_MAX) this.#spares.push(buffer);
  }
}
