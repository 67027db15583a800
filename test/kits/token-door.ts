/**
 * A door that asks for tokens, in front of a real server: it issues tokens, lets them expire, refuses, and cuts connections. The
 * server behind it needs no authentication, so a test can look at what was stored.
 */

import {
  Agent,
  createServer,
  type IncomingMessage,
  request as requestHttp,
  type ServerResponse,
} from "node:http";
import type { AddressInfo } from "node:net";

/** What the door does with a request: by its token alone, unless a test decides. */
export type DoorFate = "by token" | "refuse" | "forbid" | "unavailable" | "cut" | "lose answer";

/** A request at the door. */
export interface DoorVisit {
  readonly method: string;
  readonly path: string;
  readonly authorization: string | undefined;
  /** The number of the batch, if it is an append of a producer. */
  readonly sequence: string | undefined;
  /** How many earlier visits had the same method and number. */
  readonly earlier: number;
}

export interface TokenDoor {
  readonly url: string;
  /** The words of every token begin with this, so that a test can look for them in texts. */
  readonly mark: string;
  readonly visits: DoorVisit[];
  /** Answers with 401 so far. */
  readonly refusals: number;
  /** Called with each request. A test replaces it. */
  decide: (visit: DoorVisit) => DoorFate | Promise<DoorFate>;
  /** Returns the token that is valid now. */
  issue(): string;
  /** From now on another token is valid. */
  expire(): void;
  /** Ends the connections whose answers are on their way, as a server does with live readers. */
  cutAll(): void;
  close(): Promise<void>;
}

export interface TokenDoorOptions {
  /**
   * How long a token is valid, in milliseconds. The door issues a new one after half of it, over and over. It waits with that while a
   * request that it refused has not come back: a client tries twice, and a token that is too old both times is another test.
   */
  readonly lifeMs?: number;
}

const MARK = "hapax-secret-";

const PROBLEMS = {
  refuse: {
    status: 401,
    code: "unauthenticated",
    headers: { "WWW-Authenticate": 'Bearer realm="hapax"' },
  },
  expired: {
    status: 401,
    code: "credential_expired",
    headers: { "WWW-Authenticate": 'Bearer realm="hapax", error="invalid_token"' },
  },
  forbid: { status: 403, code: "not_allowed", headers: {} },
  unavailable: { status: 503, code: "authentication_unavailable", headers: { "Retry-After": "1" } },
};

/** Opens the door in front of the server at `upstream`. */
export async function openTokenDoor(
  upstream: string,
  { lifeMs }: TokenDoorOptions = {},
): Promise<TokenDoor> {
  const door = new Door(upstream, lifeMs === undefined ? 0 : 1);
  const server = createServer((request, response) => {
    door.take(request, response).catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => {
    server.listen(0, "127.0.0.1", resolve);
  });
  // Cast: a server that listens on a port has such an address.
  door.url = `http://127.0.0.1:${String((server.address() as AddressInfo).port)}`;
  const timer =
    lifeMs === undefined
      ? undefined
      : setInterval(() => {
          door.expireWhenFair();
        }, lifeMs / 2);
  door.close = async () => {
    clearInterval(timer);
    door.agent.destroy();
    server.closeAllConnections();
    await new Promise((resolve) => {
      server.close(resolve);
    });
  };
  return door;
}

class Door implements TokenDoor {
  readonly mark = MARK;
  readonly visits: DoorVisit[] = [];
  readonly agent = new Agent({ keepAlive: true });
  url = "";
  refusals = 0;
  decide: TokenDoor["decide"] = () => "by token";
  close: () => Promise<void> = () => Promise.resolve();
  readonly #upstream: string;
  /** How many tokens before the last one are still valid. */
  readonly #spare: number;
  #number = 1;
  /** Requests that were refused and have not come back. */
  readonly #refused = new Set<string>();
  readonly #counts = new Map<string, number>();
  readonly #answers = new Set<ServerResponse>();

  constructor(upstream: string, spare: number) {
    this.#upstream = upstream;
    this.#spare = spare;
  }

  issue(): string {
    return `${MARK}${String(this.#number)}`;
  }

  expire(): void {
    this.#number += 1;
  }

  expireWhenFair(): void {
    if (this.#refused.size === 0) this.expire();
  }

  cutAll(): void {
    for (const response of this.#answers) response.destroy();
  }

  async take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.#answers.add(response);
    response.once("close", () => this.#answers.delete(response));
    const { method = "", url: path = "", headers } = request;
    const { authorization } = headers;
    const sequence = headers["producer-seq"]?.toString();
    const same = `${method} ${sequence ?? ""}`;
    const earlier = this.#counts.get(same) ?? 0;
    this.#counts.set(same, earlier + 1);
    const visit = { method, path, authorization, sequence, earlier };
    this.visits.push(visit);
    const fate = await this.decide(visit);
    if (fate === "cut") return void response.destroy();
    const key = `${method} ${path} ${sequence ?? ""}`;
    this.#refused.delete(key);
    const number = Number(authorization?.slice(`Bearer ${MARK}`.length));
    const isValid = number <= this.#number && number >= this.#number - this.#spare;
    if (fate !== "by token" && fate !== "lose answer")
      return refuse(request, response, this.#count(fate));
    if (isValid || method === "OPTIONS") {
      return this.#pass(request, response, fate === "lose answer");
    }
    this.#refused.add(key);
    refuse(request, response, this.#count(authorization === undefined ? "refuse" : "expired"));
  }

  #count(kind: keyof typeof PROBLEMS): (typeof PROBLEMS)[keyof typeof PROBLEMS] {
    const problem = PROBLEMS[kind];
    if (problem.status === 401) this.refusals += 1;
    return problem;
  }

  async #pass(request: IncomingMessage, response: ServerResponse, isLost: boolean): Promise<void> {
    const { authorization: _, host: __, ...headers } = request.headers;
    const { method, url = "" } = request;
    const onward = requestHttp(this.#upstream + url, { agent: this.agent, method, headers });
    response.once("close", () => onward.destroy());
    request.pipe(onward);
    const answer = await new Promise<IncomingMessage>((resolve, reject) => {
      onward.once("response", resolve);
      onward.once("error", reject);
    });
    // The server has done it, and the client does not learn of it.
    if (isLost) return void response.destroy();
    response.writeHead(answer.statusCode ?? 500, answer.headers);
    response.flushHeaders();
    answer.on("error", () => response.destroy());
    answer.pipe(response);
  }
}

function refuse(
  request: IncomingMessage,
  response: ServerResponse,
  { status, code, headers }: (typeof PROBLEMS)[keyof typeof PROBLEMS],
): void {
  // A refusal comes before the body is read; the rest of it is dropped.
  request.resume();
  const body = JSON.stringify({ type: `urn:hapax:error:${code}`, code, status, detail: code });
  response.writeHead(status, { ...headers, "Content-Type": "application/problem+json" }).end(body);
}
