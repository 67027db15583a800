/**
 * The fault endpoint `/_test/inject-error`, for tests of clients. It exists only when the server was started
 * with `--test-faults`: anybody who reaches it can make the server lie.
 */

import type { Clock } from "../clock.ts";
import { invalid } from "../wire/refusal.ts";
import type { Answer, Exchange, WholeAnswer } from "./exchange.ts";
import { json } from "./json.ts";
import { methodNotAllowed } from "./problem.ts";

export const FAULTS_PATH = "/_test/inject-error";
const FAULT_BODY_BYTES_MAX = 64 * 1024;
const FAULTS_MAX = 1000;

interface Fault {
  readonly path: string;
  readonly method: string | undefined;
  readonly status: number | undefined;
  readonly retryAfter: number | undefined;
  readonly delayMs: number;
  readonly dropConnection: boolean;
  readonly truncateBodyBytes: number | undefined;
  left: number;
}

export class Faults {
  readonly #clock: Clock;
  readonly #faults: Fault[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** POST adds a fault, DELETE clears all. */
  async control(exchange: Exchange): Promise<Answer> {
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
  async around(exchange: Exchange, handle: () => Promise<Answer>): Promise<Answer> {
    const fault = this.#take(exchange);
    if (fault === undefined) return handle();
    if (fault.delayMs > 0) await this.#pause(fault.delayMs);
    if (fault.dropConnection) return { status: 500, headers: {}, drop: true };
    if (fault.status !== undefined) {
      const answer = json(fault.status, { error: "injected" });
      if (fault.retryAfter === undefined) return answer;
      return { ...answer, headers: { ...answer.headers, "Retry-After": String(fault.retryAfter) } };
    }
    const answer = await handle();
    if (fault.truncateBodyBytes === undefined || "live" in answer) return answer;
    return truncate(answer, fault.truncateBodyBytes);
  }

  #take(exchange: Exchange): Fault | undefined {
    const index = this.#faults.findIndex(
      ({ path, method }) =>
        path === exchange.path && (method === undefined || method === exchange.method),
    );
    const fault = this.#faults[index];
    if (fault === undefined) return undefined;
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
  return {
    path,
    method: method?.toUpperCase(),
    status: count(members, "status", 200, 599),
    retryAfter: count(members, "retryAfter", 0, 3600),
    delayMs: count(members, "delayMs", 0, 600_000) ?? 0,
    dropConnection: members.get("dropConnection") === true,
    truncateBodyBytes: count(members, "truncateBodyBytes", 0, Number.MAX_SAFE_INTEGER),
    left: count(members, "count", 1, Number.MAX_SAFE_INTEGER) ?? 1,
  };
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
