/**
 * The parts of the extension cases: streams of their own, requests in one line, and checks without a test runner. It
 * needs only `fetch`.
 */

/** A capability that a server may have beyond the public protocol. Each is a chapter of PROTOCOL.md. */
export type ExtensionCapability =
  | "sessions"
  | "compare"
  | "keys"
  | "windows"
  | "patience"
  | "reading-back"
  | "lives"
  | "admin"
  | "transactions"
  | "groups"
  | "compression"
  | "retention"
  | "compaction"
  | "seeking"
  | "follow-all";

/** One case, without its server. */
export interface CaseSpec {
  /** The section of PROTOCOL.md, and its sentence. */
  readonly title: string;
  /** The case waits for real time to pass. */
  readonly isSlow?: boolean;
  /** The case also needs these capabilities. */
  readonly needs?: readonly ExtensionCapability[];
  readonly run: (site: Site) => Promise<void>;
}

export type HeaderMap = Readonly<Record<string, string>>;
/**
 * Headers that an answer must have. `undefined`: the header must be absent. `SOME`: it must be there, with any value.
 */
export type ExpectedHeaders = Readonly<Record<string, string | undefined>>;

export const SOME = "(any value)";
export const EPOCH_MAX = "9007199254740991";
export const TEXT: HeaderMap = { "Content-Type": "text/plain" };
export const JSON_TYPE: HeaderMap = { "Content-Type": "application/json" };

/** Returns an offset as the server writes it. */
export function at(bytes: number): string {
  return `0000000000000000_${String(bytes).padStart(16, "0")}`;
}

export function byEpoch(id: string, epoch: number | string, sequence: number): HeaderMap {
  return {
    "Producer-Id": id,
    "Producer-Epoch": String(epoch),
    "Producer-Seq": String(sequence),
  };
}

export function bySession(id: string, nonce: string, sequence: number): HeaderMap {
  return { "Producer-Id": id, "Producer-Session": nonce, "Producer-Seq": String(sequence) };
}

export function byKey(key: string): HeaderMap {
  return { "Idempotency-Key": key };
}

export function ifMatch(bytes: number): HeaderMap {
  return { "If-Match": `"${at(bytes)}"` };
}

export const CLOSES: HeaderMap = { "Stream-Closed": "true" };

export function sleepMs(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}

export function equal(actual: unknown, expected: unknown, what: string): void {
  const [one, other] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (one !== other) throw new Error(`${what}: expected ${other}, got ${one}`);
}

export function ensure(isTrue: boolean, what: string): void {
  if (!isTrue) throw new Error(what);
}

/** An answer whose body was read to its end. */
export class CaseAnswer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly #request: string;

  constructor(request: string, response: Response, text: string) {
    this.#request = request;
    this.status = response.status;
    this.headers = response.headers;
    this.text = text;
  }

  /** The code of a problem document. */
  get code(): string | undefined {
    return this.problem("code");
  }

  get nextOffset(): string | null {
    return this.headers.get("Stream-Next-Offset");
  }

  problem(member: string): string | undefined {
    if (this.headers.get("Content-Type")?.startsWith("application/problem+json") !== true) {
      return undefined;
    }
    const value = (this.json() as Readonly<Record<string, unknown>>)[member];
    return typeof value === "string" ? value : undefined;
  }

  json(): unknown {
    return JSON.parse(this.text);
  }

  /** Throws unless the answer has this status and these headers. */
  expect(status: number, headers: ExpectedHeaders = {}): this {
    if (this.status !== status) this.#fail(`status ${status}`, this.#describe());
    for (const [name, expected] of Object.entries(headers)) {
      const value = this.headers.get(name);
      const isRight = expected === SOME ? value !== null : value === (expected ?? null);
      if (!isRight) this.#fail(`${name}: ${expected ?? "(absent)"}`, value ?? "(absent)");
    }
    return this;
  }

  /** Throws unless the answer is a refusal with this code. */
  refused(status: number, code: string, headers: ExpectedHeaders = {}): this {
    const { code: seen } = this;
    if (this.status !== status || seen !== code) this.#fail(`${status} ${code}`, this.#describe());
    return this.expect(status, headers);
  }

  #describe(): string {
    return `${this.status}${this.code === undefined ? "" : ` ${this.code}`}`;
  }

  #fail(expected: string, seen: string): never {
    throw new Error(`${this.#request}: expected ${expected}, got ${seen}`);
  }
}

export interface CaseRequest {
  readonly headers?: HeaderMap;
  readonly body?: string | Uint8Array<ArrayBuffer>;
  readonly signal?: AbortSignal;
}

/** The place of one case on the server under test: all its streams are below a path of their own. */
export class Site {
  readonly #url: string;
  readonly #folder: string;
  readonly #paths: string[] = [];

  constructor(url: string, folder: string) {
    this.#url = url.replace(/\/$/, "");
    this.#folder = folder;
  }

  urlOf(path: string): string {
    return this.#url + path;
  }

  async request(method: string, path: string, request: CaseRequest = {}): Promise<CaseAnswer> {
    const response = await fetch(this.urlOf(path), { method, ...request });
    const shown = Object.entries(request.headers ?? {})
      .filter(([name]) => name !== "Content-Type")
      .map(([name, value]) => `, ${name}: ${value.slice(0, 80)}`);
    const about = `${method} ${path}${shown.join("")}`;
    return new CaseAnswer(about, response, await response.text());
  }

  /** Returns a stream at an unused path, without creating it. `end` is added to the path as it is. */
  newStream(type: HeaderMap = TEXT, end = ""): CaseStream {
    const path = `${this.#folder}/${this.#paths.length}${end}`;
    this.#paths.push(path);
    return new CaseStream(this, path, type);
  }

  /** Returns an unused name of a group, without creating it. */
  newGroup(end = ""): string {
    const name = `${this.#folder}/group-${this.#paths.length}${end}`;
    this.#paths.push(`/_hapax/groups/${encodeURIComponent(name)}`);
    return name;
  }

  /** A pattern that matches all streams of the case. */
  get pattern(): string {
    return `${this.#folder}/**`;
  }

  /** Creates a stream of text. */
  async stream(headers: HeaderMap = {}, body?: string): Promise<CaseStream> {
    const stream = this.newStream();
    (await stream.create(headers, body)).expect(201);
    return stream;
  }

  /** Creates a stream of text with one append for each letter. */
  async letters(text: string): Promise<CaseStream> {
    const stream = await this.stream();
    for (const letter of text) (await stream.append(letter)).expect(204);
    return stream;
  }

  /** Creates a stream of JSON. */
  async jsonStream(headers: HeaderMap = {}): Promise<CaseStream> {
    const stream = this.newStream(JSON_TYPE);
    (await stream.create(headers)).expect(201);
    return stream;
  }

  /** Creates a fork of another stream. */
  async fork(source: CaseStream, headers: HeaderMap = {}): Promise<CaseStream> {
    return this.stream({ "Stream-Forked-From": source.path, ...headers });
  }

  /** Deletes everything that the case has created. */
  async clear(): Promise<void> {
    // Forks first: their sources go with them.
    for (const path of this.#paths.toReversed()) await this.request("DELETE", path);
  }
}

/** A stream of a case. */
export class CaseStream {
  readonly site: Site;
  readonly path: string;
  readonly #type: HeaderMap;

  constructor(site: Site, path: string, type: HeaderMap) {
    this.site = site;
    this.path = path;
    this.#type = type;
  }

  /** The name of the stream in the query of the server's own routes. */
  get query(): string {
    return `stream=${encodeURIComponent(decodeURIComponent(this.path))}`;
  }

  create(headers: HeaderMap = {}, body?: string): Promise<CaseAnswer> {
    return this.#send("PUT", { ...this.#type, ...headers }, body);
  }

  append(body: string, headers: HeaderMap = {}, signal?: AbortSignal): Promise<CaseAnswer> {
    return this.#send("POST", { ...this.#type, ...headers }, body, signal);
  }

  close(headers: HeaderMap = {}): Promise<CaseAnswer> {
    return this.#send("POST", { ...CLOSES, ...headers });
  }

  head(headers: HeaderMap = {}): Promise<CaseAnswer> {
    return this.#send("HEAD", headers);
  }

  delete(headers: HeaderMap = {}): Promise<CaseAnswer> {
    return this.#send("DELETE", headers);
  }

  /** Throws unless the stream holds exactly this. */
  async holds(text: string): Promise<void> {
    equal(await this.read(), text, `what ${this.path} holds`);
  }

  async read(): Promise<string> {
    return (await this.#send("GET", {})).expect(200).text;
  }

  #send(
    method: string,
    headers: HeaderMap,
    body?: string,
    signal?: AbortSignal,
  ): Promise<CaseAnswer> {
    const request: CaseRequest = {
      headers,
      ...(body === undefined ? {} : { body }),
      ...(signal === undefined ? {} : { signal }),
    };
    return this.site.request(method, this.path, request);
  }
}

/** Sends so many requests at once. Returns all answers. */
export function atOnce<T>(count: number, send: (index: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: count }, (_, index) => send(index)));
}

/** Returns how many of the answers have a status. */
export function countWithStatus(answers: readonly CaseAnswer[], status: number): number {
  return answers.filter((answer) => answer.status === status).length;
}

/** Repeats an attempt that must happen within a second, if the machine was too slow for that. */
export async function promptly(attempt: () => Promise<CaseStream>): Promise<CaseStream> {
  for (let tries = 1; ; tries += 1) {
    const startMs = performance.now();
    try {
      return await attempt();
    } catch (error) {
      if (performance.now() - startMs < 900 || tries === 5) throw error;
    }
  }
}
