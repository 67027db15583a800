/**
 * Objects in a bucket of S3 or a store like it, by plain `fetch`. An object is created by `PUT` with `If-None-Match: *`, which
 * a store must honour; `objectLog` finds out whether it does.
 *
 * An answer that is neither a success nor a known refusal leaves the outcome open: the call throws `unreachable`, and its
 * caller creates the same object again.
 */

import { decodeText } from "../../base/bytes.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import { Check } from "../once/check.ts";
import type { WindowObjects } from "./objects.ts";
import { type S3Credentials, signS3Request } from "./s3-signature.ts";

/** Options of a bucket. */
export interface S3Options {
  /** The URL of the bucket: `https://<bucket>.s3.<region>.amazonaws.com`, or `https://<host>/<bucket>`. */
  readonly url: string;
  /** The folder in the bucket that has all objects, such as `logs/orders`. Each log needs its own. Default: the whole bucket. */
  readonly prefix?: string;
  /** The region that requests are signed for. Default `us-east-1`; R2 takes `auto`. */
  readonly region?: string;
  /** The credentials, or a function that returns those of the moment. Without them requests are not signed. */
  readonly credentials?: S3Credentials | (() => S3Credentials | Promise<S3Credentials>);
  /** How long a request may take, in milliseconds. Default 30 s. */
  readonly timeoutMs?: number;
  /** Replaces `fetch`. */
  readonly fetch?: typeof fetch;
  /** Replaces the time, for tests. */
  readonly clock?: Clock;
}

const TIMEOUT_MS = 30_000;
const NOTHING = new Uint8Array();
const WORDS_MAX = 200;

interface Answer {
  readonly status: number;
  readonly bytes: Uint8Array;
}

/**
 * Returns a store of objects in a bucket. Sends nothing yet. Throws `invalid_options`.
 *
 * ```ts
 * import { s3Objects } from "hapax/window";
 *
 * const sent: string[] = [];
 * const objects = s3Objects({
 *   url: "https://orders.s3.eu-central-1.amazonaws.com",
 *   region: "eu-central-1",
 *   credentials: { accessKeyId: "AKID", secretAccessKey: "from your secret store" },
 *   // Leave it out: this one sends nothing.
 *   fetch: async (url, { headers } = {}) => {
 *     sent.push(`${url} ${new Headers(headers).get("if-none-match")}`);
 *     return new Response();
 *   },
 * });
 * await objects.create("log/1", new Uint8Array([1]));
 * console.assert(sent[0] === "https://orders.s3.eu-central-1.amazonaws.com/log/1 *");
 * ```
 */
export function s3Objects(options: S3Options): WindowObjects {
  const check = new Check();
  const { region = "us-east-1", prefix = "", timeoutMs, credentials } = options;
  const url = URL.canParse(options.url) ? new URL(options.url) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) check.problem("url is not an HTTP URL");
  else if (url.search !== "" || url.hash !== "" || url.username !== "")
    check.problem("url has more than a host and a path");
  if (/^\/|\/\/|(^|\/)\.{1,2}(\/|$)/.test(prefix)) check.problem(`prefix=${prefix} is no folder`);
  const time = check.whole("timeoutMs", timeoutMs, TIMEOUT_MS, 1, 3_600_000);
  if (region === "") check.problem("region is empty");
  check.end();
  return new S3Objects({
    bucket: (url?.href ?? "").replace(/\/+$/, ""),
    prefix: prefix === "" || prefix.endsWith("/") ? prefix : `${prefix}/`,
    region,
    timeoutMs: time,
    credentials,
    fetch: options.fetch ?? fetch,
    clock: options.clock ?? systemClock,
  });
}

interface Resolved {
  /** Without a slash at the end. */
  readonly bucket: string;
  /** With a slash at the end, or empty. */
  readonly prefix: string;
  readonly region: string;
  readonly timeoutMs: number;
  readonly credentials: S3Options["credentials"] | undefined;
  readonly fetch: typeof fetch;
  readonly clock: Clock;
}

class S3Objects implements WindowObjects {
  readonly #options: Resolved;

  constructor(options: Resolved) {
    this.#options = options;
  }

  async create(name: string, bytes: Uint8Array): Promise<"stored" | "occupied"> {
    const headers = { "if-none-match": "*", "content-type": "application/octet-stream" };
    const answer = await this.#send("PUT", this.#urlOf(name), headers, bytes);
    if (answer.status === 200 || answer.status === 201 || answer.status === 204) return "stored";
    if (answer.status === 412) return "occupied";
    // It says so itself: a store without conditions must not be used.
    if (answer.status === 501)
      throw new HapaxError("unsupported", "the store has no conditional writes (If-None-Match: *)");
    throw unanswered("PUT", name, answer);
  }

  async get(name: string): Promise<Uint8Array | undefined> {
    const answer = await this.#send("GET", this.#urlOf(name));
    if (answer.status === 200) return answer.bytes;
    if (answer.status === 404) return undefined;
    throw unanswered("GET", name, answer);
  }

  async list(prefix: string): Promise<readonly string[]> {
    const names: string[] = [];
    for (let token: string | undefined; ;) {
      const url = new URL(`${this.#options.bucket}/`);
      url.searchParams.set("list-type", "2");
      url.searchParams.set("prefix", `${this.#options.prefix}${prefix}`);
      if (token !== undefined) url.searchParams.set("continuation-token", token);
      const answer = await this.#send("GET", url);
      if (answer.status !== 200) throw unanswered("GET", prefix, answer);
      const text = decodeText(answer.bytes);
      const keys = textsOf(text, "Key").filter((key) => key.startsWith(this.#options.prefix));
      names.push(...keys.map((key) => key.slice(this.#options.prefix.length)));
      const [next] = textsOf(text, "NextContinuationToken");
      if (textsOf(text, "IsTruncated")[0] !== "true" || next === undefined) return names;
      token = next;
    }
  }

  async remove(name: string): Promise<void> {
    const answer = await this.#send("DELETE", this.#urlOf(name));
    if (answer.status >= 300 && answer.status !== 404) throw unanswered("DELETE", name, answer);
  }

  #urlOf(name: string): URL {
    const { bucket, prefix } = this.#options;
    return new URL(`${bucket}/${prefix.split("/").map(encodeURIComponent).join("/")}${name}`);
  }

  /** Returns the whole answer. Throws `unreachable` if none came, or not in time. */
  async #send(
    method: string,
    url: URL,
    headers: Readonly<Record<string, string>> = {},
    body: Uint8Array = NOTHING,
  ): Promise<Answer> {
    const { credentials, region, clock, timeoutMs, fetch: fetcher } = this.#options;
    const known = typeof credentials === "function" ? await credentials() : credentials;
    const signed =
      known === undefined
        ? headers
        : await signS3Request({ method, url, headers, body }, known, region, clock.nowMs());
    const late = new AbortController();
    const cancel = clock.after(timeoutMs, () => late.abort());
    try {
      const answer = await fetcher(url.href, {
        method,
        headers: signed,
        // A redirect would go to a place that the signature is not for.
        redirect: "manual",
        signal: late.signal,
        // The type wants bytes that no other thread can change; ours are never shared.
        ...(method === "PUT" ? { body: body as Uint8Array<ArrayBuffer> } : {}),
      });
      return { status: answer.status, bytes: new Uint8Array(await answer.arrayBuffer()) };
    } catch (error) {
      const why = late.signal.aborted ? `no answer within ${timeoutMs} ms` : "no answer";
      throw new HapaxError("unreachable", `${why} from the store`, { cause: error });
    } finally {
      cancel();
    }
  }
}

/** The texts of all elements of this name. Names of objects are plain, but a prefix may have any character. */
function textsOf(xml: string, element: string): string[] {
  const texts: string[] = [];
  const [open, close] = [`<${element}>`, `</${element}>`];
  for (let at = xml.indexOf(open); at >= 0; at = xml.indexOf(open, at)) {
    const end = xml.indexOf(close, at);
    if (end < 0) break;
    texts.push(unescaped(xml.slice(at + open.length, end)));
    at = end;
  }
  return texts;
}

const ENTITIES: Readonly<Record<string, string>> = {
  lt: "<",
  gt: ">",
  quot: '"',
  apos: "'",
  amp: "&",
};

function unescaped(text: string): string {
  return text.replace(/&(?:#(\d+)|#x([\da-fA-F]+)|(\w+));/g, (whole, decimal, hex, word) => {
    if (decimal !== undefined) return String.fromCodePoint(Number(decimal));
    if (hex !== undefined) return String.fromCodePoint(Number.parseInt(String(hex), 16));
    return ENTITIES[String(word)] ?? whole;
  });
}

function unanswered(method: string, name: string, { status, bytes }: Answer): HapaxError {
  // The code of the store, such as `SlowDown`. Its other words may name the key that signed.
  const [code = ""] = textsOf(decodeText(bytes.subarray(0, 4096)), "Code");
  const words = code.slice(0, WORDS_MAX).replace(/[^\w.-]/g, "");
  return new HapaxError("unreachable", `the store answered ${status} ${words}; ${method} ${name}`);
}
