/** The addresses on a server: streams by their paths, and the routes of transactions and groups. */

import { withoutLastSlashes } from "../../protocol/slashes.ts";
import { HapaxError } from "../../base/errors.ts";

/** Names a stream: its path as in the protocol (absolute, not percent-encoded), or a handle of `hapax/client`. */
export type StreamTarget = string | { readonly url: string };

/** The addresses of one server. */
export class Addresses {
  /** The address of the server, without a slash at the end. */
  readonly base: string;
  readonly #prefix: string;
  /** The last handle and its path: thousands of records go to the same one. */
  #last: { readonly url: string; readonly path: string } | undefined;

  constructor(url: string | URL) {
    let whole: URL;
    try {
      whole = new URL(url);
    } catch (error) {
      throw new HapaxError("invalid_options", `url=${String(url)} is not a URL`, { cause: error });
    }
    this.#prefix = withoutLastSlashes(whole.pathname);
    this.base = whole.origin + this.#prefix;
  }

  get transactions(): string {
    return `${this.base}/_hapax/transactions`;
  }

  group(name: string, action?: string): string {
    const path = `${this.base}/_hapax/groups/${encodeURIComponent(name)}`;
    return action === undefined ? path : `${path}/${action}`;
  }

  /** Returns the URL of the stream at a path. */
  stream(path: string): string {
    return this.base + path.split("/").map(encodeURIComponent).join("/");
  }

  /** Returns the path of a stream. Throws `invalid_request` if it is not a stream of this server. */
  pathOf(target: StreamTarget): string {
    if (typeof target === "string") {
      if (target.startsWith("/")) return target;
      throw new HapaxError("invalid_request", `stream=${target} is not an absolute path`);
    }
    const { url } = target;
    if (url === this.#last?.url) return this.#last.path;
    const { origin, pathname } = new URL(url);
    const isHere = origin + this.#prefix === this.base && pathname.startsWith(`${this.#prefix}/`);
    if (!isHere) {
      throw new HapaxError("invalid_request", `stream=${url} is not on ${this.base}`);
    }
    const path = decodeURIComponent(pathname.slice(this.#prefix.length));
    this.#last = { url, path };
    return path;
  }
}
