/**
 * Objects in a bucket of S3 or a store like it, by plain `fetch`. An object is created by `PUT` with `If-None-Match: *`, which
 * a store must honour; `objectLog` finds out whether it does.
 *
 * An answer that is neither a success nor a known refusal leaves the outcome open: the call throws `unreachable`, and its
 * caller creates the same object again.
 */

import { unlessAborted } from "../../base/aborts.ts";
import { decodeText, joinBytes } from "../../base/bytes.ts";
import { type Clock, waitingClock } from "../../base/clock.ts";
import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoint.ts";
import { withoutLastSlashes } from "../../protocol/slashes.ts";
import { Check } from "../once/check.ts";
import { LISTED_MAX, type WindowObjects } from "./objects.ts";
import { encodeMember, type S3Credentials, type S3Request, signS3Request } from "./s3-signature.ts";

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
/** Lists and errors. A page of a list has at most 1,000 names of at most 1,024 bytes. */
const WORDS_BYTES_MAX = 16 * 1_048_576;

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
  else if (`${url.search}${url.hash}${url.username}${url.password}` !== "")
    check.problem("url has more than a host and a path");
  if (/^\/|\/\/|(^|\/)\.{1,2}(\/|$)/.test(prefix)) check.problem(`prefix=${prefix} is no folder`);
  const time = check.whole("timeoutMs", timeoutMs, TIMEOUT_MS, 1, 3_600_000);
  if (!/^[\w-]+$/.test(region)) check.problem("region is not a name such as eu-central-1");
  if (typeof credentials === "object") checkCredentials(check, credentials);
  check.end();
  return new S3Objects({
    bucket: withoutLastSlashes(url?.href ?? ""),
    prefix: prefix === "" || prefix.endsWith("/") ? prefix : `${prefix}/`,
    region,
    timeoutMs: time,
    credentials,
    fetch: options.fetch ?? fetch,
    clock: options.clock ?? waitingClock,
  });
}

/** A credential that was read from a file may end with a line. No error says what it is. */
function checkCredentials(check: Check, credentials: S3Credentials): void {
  const { accessKeyId, secretAccessKey, sessionToken = "none" } = credentials;
  for (const [name, value] of Object.entries({ accessKeyId, secretAccessKey, sessionToken }))
    if (typeof value !== "string" || !/^[!-~]([ -~]*[!-~])?$/.test(value))
      check.problem(
        `${name} of the credentials is empty, has a space or a line end around it, or is not ASCII`,
      );
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
    await failpoint("window.s3.sending");
    const answer = await this.#send("PUT", this.#urlOf(name), headers, bytes);
    await failpoint("window.s3.answered");
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
    // Stores also say 404 of a bucket or of an unknown caller. A log that cannot be seen is not empty.
    if (answer.status === 404 && ["NoSuchKey", ""].includes(codeOf(answer))) return undefined;
    throw unanswered("GET", name, answer);
  }

  async list(prefix: string): Promise<readonly string[]> {
    const names: string[] = [];
    const folder = encodeMember(`${this.#options.prefix}${prefix}`);
    for (let token: string | undefined; ;) {
      const from = token === undefined ? "" : `continuation-token=${encodeMember(token)}&`;
      const url = new URL(`${this.#options.bucket}/?${from}list-type=2&prefix=${folder}`);
      const answer = await this.#send("GET", url);
      if (answer.status !== 200) throw unanswered("GET", prefix, answer);
      const text = decodeText(answer.bytes);
      const keys = textsOf(text, "Key").filter((key) => key.startsWith(this.#options.prefix));
      for (const key of keys) names.push(key.slice(this.#options.prefix.length));
      const [next] = textsOf(text, "NextContinuationToken");
      if (textsOf(text, "IsTruncated")[0] !== "true" || next === undefined) return names;
      if (next === token || names.length > LISTED_MAX)
        throw new HapaxError("unreachable", `the list of the store has no end; prefix=${prefix}`);
      token = next;
    }
  }

  async remove(name: string): Promise<void> {
    const answer = await this.#send("DELETE", this.#urlOf(name));
    if (answer.status >= 300 && answer.status !== 404) throw unanswered("DELETE", name, answer);
  }

  #urlOf(name: string): URL {
    const { bucket, prefix } = this.#options;
    return new URL(`${bucket}/${prefix.split("/").map(encodeMember).join("/")}${name}`);
  }

  /** Returns the whole answer. Throws `unreachable` if none came, or not in time. */
  async #send(
    method: string,
    url: URL,
    headers: Readonly<Record<string, string>> = {},
    body: Uint8Array = NOTHING,
  ): Promise<Answer> {
    const { clock, timeoutMs } = this.#options;
    const late = new AbortController();
    const cancel = clock.after(timeoutMs, () => late.abort());
    const request = { method, url, headers, body };
    try {
      return await unlessAborted(this.#answerTo(request, late.signal), late.signal);
    } catch (error) {
      if (isHapaxError(error)) throw error;
      const why = late.signal.aborted ? `no answer within ${timeoutMs} ms` : "no answer";
      throw new HapaxError("unreachable", `${why} from the store`, { cause: error });
    } finally {
      cancel();
    }
  }

  async #answerTo(request: S3Request, signal: AbortSignal): Promise<Answer> {
    const { method, url, body } = request;
    const answer = await this.#options.fetch(url.href, {
      method,
      headers: await this.#signed(request),
      // A redirect would go to a place that the signature is not for.
      redirect: "manual",
      signal,
      // The type wants bytes that no other thread can change; ours are never shared.
      ...(method === "PUT" ? { body: body as Uint8Array<ArrayBuffer> } : {}),
    });
    const { status } = answer;
    const isObject = status === 200 && url.search === "";
    return { status, bytes: await bytesOf(answer, isObject ? Infinity : WORDS_BYTES_MAX) };
  }

  /** The headers of the request. Asks for credentials each time: they may have changed. */
  async #signed(request: S3Request): Promise<Readonly<Record<string, string>>> {
    const { credentials, region, clock } = this.#options;
    if (credentials === undefined) return request.headers;
    const known = typeof credentials === "function" ? await credentials() : credentials;
    const check = new Check();
    checkCredentials(check, known);
    check.end();
    return await signS3Request(request, known, region, clock.nowMs());
  }
}

/** Reads a body. A store that sends without end gets no memory for it. */
async function bytesOf({ body }: Response, bytesMax: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of body ?? []) {
    size += chunk.length;
    if (size > bytesMax)
      throw new HapaxError("unreachable", `the answer of the store is over ${bytesMax} bytes`);
    chunks.push(chunk);
  }
  return joinBytes(chunks);
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

/** The code of the store, such as `SlowDown`. Its other words may name the key that signed. */
function codeOf({ bytes }: Answer): string {
  const [code = ""] = textsOf(decodeText(bytes.subarray(0, 4096)), "Code");
  return code.slice(0, WORDS_MAX).replace(/[^\w.-]/g, "");
}

function unanswered(method: string, name: string, answer: Answer): HapaxError {
  const words = `the store answered ${answer.status} ${codeOf(answer)}`;
  return new HapaxError("unreachable", `${words}; ${method} ${name}`);
}
