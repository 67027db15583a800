/**
 * Requests of the command line: one attempt, or many under the same identity.
 *
 *   CH1  an answer counts only when its whole body has arrived: an answer cut short is no answer;
 *   CH2  every attempt of a call sends the same method, headers and bytes. The caller's identity (producer,
 *       epoch, sequence) is in them, so that the server can tell a retry from a new write;
 *   CH3  redirects are shown, never followed: a POST that becomes a GET would be a write that is lost.
 */

import type { Context } from "./context.ts";
import { CommandFailure, EXIT, type Problem, systemCode } from "./failure.ts";
import type { Target } from "./target.ts";
import { printable } from "./terminal.ts";

const ATTEMPT_TIMEOUT_MS = 30_000;
const BACKOFF_MS_MIN = 100;
const BACKOFF_MS_MAX = 5_000;

export interface Call {
  readonly target: Target;
  readonly method: "GET" | "HEAD" | "PUT" | "POST" | "DELETE";
  readonly query?: Readonly<Record<string, string | undefined>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array;
  readonly signal?: AbortSignal;
}

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Uint8Array;
}

export interface Retried {
  readonly answer: Answer;
  readonly attempts: number;
}

/** One attempt. Fails with `unreachable` when no whole answer arrives. */
export async function send(
  context: Context,
  call: Call,
  timeoutMs = ATTEMPT_TIMEOUT_MS,
): Promise<Answer> {
  const timeout = AbortSignal.timeout(timeoutMs);
  const signal = call.signal === undefined ? timeout : AbortSignal.any([timeout, call.signal]);
  try {
    const response = await open(context, call, signal);
    const body = new Uint8Array(await response.arrayBuffer());
    return { status: response.status, headers: response.headers, body };
  } catch (error) {
    call.signal?.throwIfAborted();
    throw unreachable(call.target, error, timeout.aborted ? timeoutMs : undefined);
  }
}

/** Starts a request and answers with its headers; the body is still to come. */
export async function open(context: Context, call: Call, signal: AbortSignal): Promise<Response> {
  const headers = new Headers(call.target.headers);
  for (const [name, value] of Object.entries(call.headers ?? {})) headers.set(name, value);
  return context.fetch(urlOf(call), {
    method: call.method,
    headers,
    redirect: "manual",
    signal,
    // A view of a shared buffer is never passed here, which is all that the wider type would allow.
    ...(call.body === undefined ? {} : { body: call.body as Uint8Array<ArrayBuffer> }),
  });
}

/** For how long an act of administration is repeated whose answer does not come. */
const ACT_RETRY_SECONDS = 30;

/** An act under a key of its own: the server does it once, however often it is sent. PROTOCOL.md §12.7. */
export async function sendAct(context: Context, call: Call): Promise<Answer> {
  const headers = { ...call.headers, "Idempotency-Key": `"${context.random.id()}"` };
  return (await sendWithRetries(context, { ...call, headers }, ACT_RETRY_SECONDS)).answer;
}

/** Repeats a call that got no answer, or one that says "again", until `retrySeconds` have passed. */
export async function sendWithRetries(
  context: Context,
  call: Call,
  retrySeconds: number,
): Promise<Retried> {
  const deadlineMs = context.nowMs() + retrySeconds * 1000;
  for (let attempts = 1; ; attempts += 1) {
    const leftMs = Math.max(1_000, deadlineMs - context.nowMs());
    const timeoutMs = retrySeconds > 0 ? Math.min(ATTEMPT_TIMEOUT_MS, leftMs) : ATTEMPT_TIMEOUT_MS;
    const outcome = await attempt(context, call, timeoutMs);
    if ("answer" in outcome && !isRetryable(outcome.answer.status)) {
      return { answer: outcome.answer, attempts };
    }
    const asked = "answer" in outcome ? retryAfterMs(outcome.answer, context.nowMs()) : undefined;
    const delayMs = Math.max(asked ?? 0, backoffMs(attempts, context.random.unit()));
    if (context.nowMs() + delayMs > deadlineMs) {
      if ("answer" in outcome) return { answer: outcome.answer, attempts };
      throw outcome.failure;
    }
    if (attempts === 1) await tellOfRetry(context, call, outcome, deadlineMs - context.nowMs());
    await context.wait(delayMs, call.signal);
  }
}

type Outcome = { readonly answer: Answer } | { readonly failure: CommandFailure };

async function attempt(context: Context, call: Call, timeoutMs: number): Promise<Outcome> {
  try {
    return { answer: await send(context, call, timeoutMs) };
  } catch (error) {
    if (error instanceof CommandFailure && error.exitCode === EXIT.unreachable) {
      return { failure: error };
    }
    throw error;
  }
}

async function tellOfRetry(
  context: Context,
  call: Call,
  outcome: Outcome,
  leftMs: number,
): Promise<void> {
  const reason =
    "answer" in outcome
      ? `the server answered ${String(outcome.answer.status)}`
      : outcome.failure.message;
  const seconds = String(Math.ceil(leftMs / 1000));
  const text = `hapax: ${reason}; trying ${call.method} again for up to ${seconds} s\n`;
  await context.stderr.write(text);
}

export function isRetryable(status: number): boolean {
  if (status === 408 || status === 425 || status === 429) return true;
  // 501 and 505 are statements about the server, not about this moment.
  return status >= 500 && status !== 501 && status !== 505;
}

/** Exponential with full jitter above half, so that many clients do not come back together. */
export function backoffMs(attempts: number, unit: number): number {
  const ceiling = Math.min(BACKOFF_MS_MAX, BACKOFF_MS_MIN * 2 ** Math.min(attempts - 1, 16));
  return Math.round(ceiling * (0.5 + unit / 2));
}

function retryAfterMs(answer: Answer, nowMs: number): number | undefined {
  const text = answer.headers.get("retry-after")?.trim();
  if (text === undefined) return undefined;
  if (/^\d{1,9}$/.test(text)) return Number(text) * 1000;
  const dateMs = Date.parse(text);
  return Number.isNaN(dateMs) ? undefined : Math.max(0, dateMs - nowMs);
}

function urlOf(call: Call): string {
  const url = new URL(call.target.url);
  for (const [name, value] of Object.entries(call.query ?? {})) {
    if (value !== undefined) url.searchParams.set(name, value);
  }
  return url.href;
}

export function unreachable(target: Target, error: unknown, timeoutMs?: number): CommandFailure {
  const { origin } = new URL(target.url);
  const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
  const reason =
    timeoutMs === undefined
      ? (systemCode(cause) ?? (cause instanceof Error ? cause.message : String(cause)))
      : `no answer within ${String(Math.round(timeoutMs / 1000))} s`;
  return new CommandFailure(
    EXIT.unreachable,
    `cannot reach ${origin} (${printable(reason)})`,
    [
      "is the server running? start one with: hapax serve; or give another one with --url or HAPAX_URL",
    ],
    {},
    { cause: error },
  );
}

/** The failure that a refusing answer means, in the server's own words. */
export function refusal(target: Target, answer: Answer): CommandFailure {
  const problem = parseProblem(answer);
  const exitCode = answer.status === 404 || answer.status === 410 ? EXIT.notFound : EXIT.refused;
  const code = problem.code === undefined ? "" : ` ${problem.code}`;
  const title = problem.title ?? standardTitle(answer);
  const isForeign = problem.code === undefined && isPage(answer);
  const advice = isForeign
    ? [NO_SERVER]
    : [problem.detail, problem.help].filter((line) => line !== undefined);
  return new CommandFailure(
    exitCode,
    printable(`${title} (${String(answer.status)}${code}): ${target.label}`),
    advice.map(printable),
    { ...problem, title, status: answer.status },
  );
}

/** What to say of an address where something answers, and not as the protocol does. */
export const NO_SERVER =
  "another program answers there, not a Durable Streams server; check --url or HAPAX_URL, and the port";

/** For people to read in a browser: no server of the protocol answers so. */
function isPage(answer: Answer): boolean {
  return /^text\/html\b/i.test(answer.headers.get("content-type") ?? "");
}

function standardTitle(answer: Answer): string {
  if (answer.status >= 300 && answer.status < 400) {
    const location = answer.headers.get("location") ?? "nowhere";
    return `The server redirects to ${location}; give that URL if you trust it`;
  }
  if (answer.status === 404) return "No such stream";
  if (answer.status === 410) return "The stream, or this part of it, is gone";
  if (answer.headers.get("stream-closed") === "true") return "The stream is closed";
  return "The server refused";
}

const DETAIL_CHARS_MAX = 500;

function parseProblem(answer: Answer): Problem {
  const text = new TextDecoder().decode(answer.body.subarray(0, 64 * 1024)).trim();
  const isJson = /^application\/([\w.-]+\+)?json/i.test(answer.headers.get("content-type") ?? "");
  if (text === "") return {}; // Every answer to HEAD.
  if (!isJson) return { detail: text.slice(0, DETAIL_CHARS_MAX) };
  try {
    return problemFields(JSON.parse(text));
  } catch {
    return { detail: text.slice(0, DETAIL_CHARS_MAX) };
  }
}

function problemFields(value: unknown): Problem {
  if (typeof value !== "object" || value === null) return {};
  const fields = new Map<string, unknown>(Object.entries(value));
  const names = ["code", "title", "detail", "help"] as const;
  return Object.fromEntries(
    names.flatMap((name) => {
      const field = fields.get(name);
      return typeof field === "string" ? [[name, field]] : [];
    }),
  );
}
