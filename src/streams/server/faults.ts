/**
 * The fault endpoint `/_test/inject-error`, for tests of clients. It exists only when the server was started
 * with `--test-faults`: anybody who reaches it can make the server lie.
 */

import { joinBytes } from "../../base/bytes.ts";
import type { Clock } from "../../base/clock.ts";
import type { Random } from "../../base/random.ts";
import { invalid } from "../../protocol/refusal.ts";
import type { ServerAnswer, Exchange, LiveAnswer, WholeAnswer } from "./exchange.ts";
import { json } from "./json.ts";
import type { ServerParts } from "./parts.ts";
import { failureAnswer, methodNotAllowed } from "./problem.ts";

const FAULTS_PATH = "/_test/inject-error";
const FAULT_BODY_BYTES_MAX = 64 * 1024;
const FAULTS_MAX = 1000;

interface Fault {
  readonly path: string;
  readonly method: string | undefined;
  readonly status: number | undefined;
  readonly retryAfter: number | undefined;
  readonly delayMs: number;
  /** Up to so much more, at random. */
  readonly jitterMs: number;
  /** Of a request that the fault is for, how likely the fault strikes. */
  readonly probability: number;
  readonly dropConnection: boolean;
  readonly truncateBodyBytes: number | undefined;
  readonly corruptBody: boolean;
  readonly injectSseEvent: InjectedEvent | undefined;
  left: number;
}

interface InjectedEvent {
  readonly eventType: string;
  readonly data: string;
}

export class Faults {
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #faults: Fault[] = [];

  constructor(clock: Clock, random: Random) {
    this.#clock = clock;
    this.#random = random;
  }

  /** Answers the endpoint itself, or as `handle` with the fault that is set for this request. */
  answer(
    exchange: Exchange,
    parts: ServerParts,
    handle: () => Promise<ServerAnswer>,
  ): Promise<ServerAnswer> {
    const isControl = exchange.path === FAULTS_PATH && exchange.method !== "OPTIONS";
    if (!isControl) return this.#around(exchange, handle);
    return this.#control(exchange, parts).catch((error: unknown) => failureAnswer(error));
  }

  /** POST adds a fault, DELETE clears all. */
  async #control(exchange: Exchange, { doors, gate }: ServerParts): Promise<ServerAnswer> {
    exchange.checkHead?.();
    doors.check(exchange);
    // A fault strikes requests of every caller.
    (await gate.admit(exchange)).requireWholeServer("admin");
    if (exchange.method === "DELETE") {
      this.#faults.length = 0;
      return json(200, { ok: true });
    }
    if (exchange.method !== "POST") return methodNotAllowed("POST, DELETE, OPTIONS");
    if (this.#faults.length >= FAULTS_MAX) throw invalid("the list of faults", "is full");
    const body = await exchange.body(FAULT_BODY_BYTES_MAX);
    this.#faults.push(parseFault(body));
    return json(200, { ok: true });
  }

  /** Answers in place of the handler, or changes its answer, if a fault is set for this request. */
  async #around(exchange: Exchange, handle: () => Promise<ServerAnswer>): Promise<ServerAnswer> {
    const fault = this.#take(exchange);
    if (fault === undefined) return handle();
    const delayMs = fault.delayMs + fault.jitterMs * this.#random.unit();
    if (delayMs > 0) await this.#pause(delayMs);
    if (fault.dropConnection) return { status: 500, headers: {}, drop: true };
    if (fault.status !== undefined) {
      const answer = json(fault.status, { error: "injected" });
      if (fault.retryAfter === undefined) return answer;
      return { ...answer, headers: { ...answer.headers, "Retry-After": String(fault.retryAfter) } };
    }
    const answer = await handle();
    if ("live" in answer) return inject(answer, fault.injectSseEvent);
    const { truncateBodyBytes } = fault;
    const cut = truncateBodyBytes === undefined ? answer : truncate(answer, truncateBodyBytes);
    return fault.corruptBody ? corrupt(cut, this.#random) : cut;
  }

  #take(exchange: Exchange): Fault | undefined {
    const index = this.#faults.findIndex(
      ({ path, method }) =>
        path === exchange.path && (method === undefined || method === exchange.method),
    );
    const fault = this.#faults[index];
    if (fault === undefined || this.#random.unit() >= fault.probability) return undefined;
    fault.left -= 1;
    if (fault.left <= 0) this.#faults.splice(index, 1);
    return fault;
  }

  #pause(delayMs: number): Promise<void> {
    return new Promise((resolve) => {
      this.#clock.after(delayMs, resolve);
    });
  }
}

function truncate(answer: WholeAnswer, bytes: number): WholeAnswer {
  if (answer.body === undefined) return answer;
  const pieces = answer.body instanceof Uint8Array ? [answer.body] : answer.body;
  const kept: Uint8Array[] = [];
  let left = bytes;
  for (const piece of pieces) {
    if (left <= 0) break;
    kept.push(piece.subarray(0, left));
    left -= piece.length;
  }
  return { status: answer.status, headers: answer.headers, body: kept };
}

/** As the reference server spoils a body: its first two bytes, and about a tenth of the others. */
function corrupt(answer: WholeAnswer, random: Random): WholeAnswer {
  if (answer.body === undefined) return answer;
  const pieces = answer.body instanceof Uint8Array ? [answer.body] : answer.body;
  // A copy: the pieces are shared.
  const body = new Uint8Array(joinBytes(pieces));
  for (let left = Math.floor(body.length / 10); left > 0; left -= 1) {
    body[Math.floor(random.unit() * body.length)] = 0x5a;
  }
  body.set([0x58, 0x59].slice(0, body.length));
  return { status: answer.status, headers: answer.headers, body };
}

/** Sends the event as it was given, also if no decoder can read it. */
function inject(answer: LiveAnswer, event: InjectedEvent | undefined): LiveAnswer {
  if (event === undefined) return answer;
  return {
    ...answer,
    live: (sink) => {
      sink.write(new TextEncoder().encode(`event: ${event.eventType}\ndata: ${event.data}\n\n`));
      answer.live(sink);
    },
  };
}

function parseFault(body: Uint8Array): Fault {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
  } catch {
    throw invalid("the body", "is not JSON");
  }
  if (typeof value !== "object" || value === null) throw invalid("the body", "is not an object");
  const members = new Map<string, unknown>(Object.entries(value));
  const path = members.get("path");
  if (typeof path !== "string" || !path.startsWith("/")) throw invalid("path", "is not a path");
  const method = members.get("method");
  if (method !== undefined && typeof method !== "string") throw invalid("method", "is not text");
  if (!KINDS.some((kind) => members.has(kind))) {
    throw invalid("the fault", `does nothing: it has none of ${KINDS.join(", ")}`);
  }
  return {
    path,
    method: method?.toUpperCase(),
    status: count(members, "status", 200, 599),
    retryAfter: count(members, "retryAfter", 0, 3600),
    delayMs: count(members, "delayMs", 0, 600_000) ?? 0,
    jitterMs: count(members, "jitterMs", 0, 600_000) ?? 0,
    probability: parseProbability(members.get("probability")),
    dropConnection: flag(members, "dropConnection"),
    truncateBodyBytes: count(members, "truncateBodyBytes", 0, Number.MAX_SAFE_INTEGER),
    corruptBody: flag(members, "corruptBody"),
    injectSseEvent: parseEvent(members.get("injectSseEvent")),
    left: count(members, "count", 1, Number.MAX_SAFE_INTEGER) ?? 1,
  };
}

/** Members that make a fault do something. */
const KINDS = [
  "status",
  "delayMs",
  "dropConnection",
  "truncateBodyBytes",
  "corruptBody",
  "injectSseEvent",
] as const;

function flag(members: ReadonlyMap<string, unknown>, name: string): boolean {
  const value = members.get(name) ?? false;
  if (typeof value === "boolean") return value;
  throw invalid(name, "is neither true nor false");
}

function parseProbability(value: unknown): number {
  if (value === undefined) return 1;
  if (typeof value === "number" && value >= 0 && value <= 1) return value;
  throw invalid("probability", "is not a number from 0 to 1");
}

function parseEvent(value: unknown): InjectedEvent | undefined {
  if (value === undefined) return undefined;
  if (typeof value === "object" && value !== null && "eventType" in value && "data" in value) {
    const { eventType, data } = value;
    if (typeof eventType === "string" && typeof data === "string") return { eventType, data };
  }
  throw invalid("injectSseEvent", "is not {eventType, data}, both text");
}

function count(
  members: ReadonlyMap<string, unknown>,
  name: string,
  min: number,
  max: number,
): number | undefined {
  const value = members.get(name);
  if (value === undefined) return undefined;
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= min && value <= max) {
    return value;
  }
  throw invalid(name, `is not a whole number from ${min} to ${max}`);
}
