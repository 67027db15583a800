/**
 * Requests of the command line: one attempt, or many under the same identity.
 *
 *   - an answer counts only when its whole body has arrived: an answer cut short is no answer;
 *   - every attempt of a call sends the same method, headers and bytes. The caller's identity (producer,
 *     epoch, sequence) is in them, so that the server can tell a retry from a new write;
 *   - redirects are shown, never followed: a POST that becomes a GET would be a write that is lost.
 */

import { IDEMPOTENCY_KEY, STREAM_CLOSED } from "../protocol/header-names.ts";
import { waitingClock } from "../base/clock.ts";
import { type HapaxError, isHapaxError } from "../base/errors.ts";
import { type Call, Caller } from "../client/attempt.ts";
import { RequestAttempt } from "../client/request.ts";
import { resolveClientOptions } from "../client/options.ts";
import { type ClientAnswer, fetchTransport, type Transport } from "../client/transport.ts";
import { wholeAnswers } from "../client/whole-answers.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT, type ProblemDocument, systemCode } from "./failure.ts";
import type { Target } from "./target.ts";
import { printable } from "./terminal.ts";
import { accessAdvice } from "./token.ts";

const ATTEMPT_TIMEOUT_MS = 30_000;
const ATTEMPT_TIMEOUT_MS_MIN = 1_000;
/** The pauses between attempts. */
export const PAUSES = { pauseMs: 100, pauseMsMax: 5_000 };

export interface CliCall {
  readonly target: Target;
  readonly method: "GET" | "HEAD" | "PUT" | "POST" | "DELETE";
  readonly query?: Readonly<Record<string, string | undefined>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array;
  readonly signal?: AbortSignal;
}

export interface CliAnswer {
  readonly status: number;
  /** By its name, in any case. */
  header(name: string): string | undefined;
  readonly body: Uint8Array;
}

export interface Retried {
  readonly answer: CliAnswer;
  readonly attempts: number;
}

/** One attempt. Fails with `unreachable` when no whole answer arrives. */
export async function send(context: Context, call: CliCall): Promise<CliAnswer> {
  const caller = new CommandCaller(context, call, 0);
  try {
    return await cliAnswerOf(await caller.once(requestOf(call)));
  } catch (error) {
    throw caller.failureOf(error);
  }
}

/** Begins an attempt whose body is taken as it comes. It ends after `silenceMs`, unless it is armed again. */
export function begin(context: Context, call: CliCall, silenceMs: number): RequestAttempt {
  const caller = new Caller(optionsOf(context, call.target, transportOf(context), 0));
  return new RequestAttempt(caller, { ...requestOf(call), timeoutMs: silenceMs });
}

/** The answer with its whole body. */
export async function cliAnswerOf(answer: ClientAnswer): Promise<CliAnswer> {
  const { status } = answer;
  return {
    status,
    header: (name) => answer.header(name.toLowerCase()),
    body: await answer.bytes(),
  };
}

/** For how long an act of administration is repeated whose answer does not come. */
const ACT_RETRY_SECONDS = 30;

/** An act under a key of its own: the server does it once, however often it is sent. PROTOCOL.md §12.7. */
export async function sendAct(context: Context, call: CliCall): Promise<CliAnswer> {
  const headers = { ...call.headers, [IDEMPOTENCY_KEY]: context.random.id() };
  return (await sendWithRetries(context, { ...call, headers }, ACT_RETRY_SECONDS)).answer;
}

/** Repeats a call that got no answer, or one that says "again", until `retrySeconds` have passed. */
export async function sendWithRetries(
  context: Context,
  call: CliCall,
  retrySeconds: number,
): Promise<Retried> {
  const caller = new CommandCaller(context, call, retrySeconds);
  try {
    const { answer } = await caller.untilAnswered(requestOf(call));
    return { answer: await cliAnswerOf(answer), attempts: caller.attempts };
  } catch (error) {
    throw caller.failureOf(error);
  }
}

/** The client's caller, which counts its attempts, and tells before it repeats the call. */
class CommandCaller extends Caller {
  readonly #context: Context;
  readonly #call: CliCall;
  readonly #retrySeconds: number;
  readonly #deadlineMs: number;
  attempts = 0;
  /** The time of the last attempt, and how it ended. */
  #timeoutMs = ATTEMPT_TIMEOUT_MS;
  #ending = "";

  constructor(context: Context, call: CliCall, retrySeconds: number) {
    const transport = wholeAnswers(transportOf(context));
    super(optionsOf(context, call.target, transport, retrySeconds * 1000));
    this.#context = context;
    this.#call = call;
    this.#retrySeconds = retrySeconds;
    this.#deadlineMs = context.nowMs() + retrySeconds * 1000;
  }

  override async once(call: Call): Promise<ClientAnswer> {
    this.attempts += 1;
    const leftMs = Math.max(ATTEMPT_TIMEOUT_MS_MIN, this.#deadlineMs - this.#context.nowMs());
    this.#timeoutMs = Math.min(ATTEMPT_TIMEOUT_MS, this.#retrySeconds > 0 ? leftMs : Infinity);
    try {
      const answer = await super.once({ ...call, timeoutMs: this.#timeoutMs });
      this.#ending = `the server answered ${String(answer.status)}`;
      return answer;
    } catch (error) {
      const failure = this.failureOf(error);
      if (failure instanceof Error) this.#ending = failure.message;
      throw error;
    }
  }

  override async wait(delayMs: number, signal?: AbortSignal): Promise<void> {
    if (this.attempts === 1) {
      const seconds = Math.ceil((this.#deadlineMs - this.#context.nowMs()) / 1000);
      const again = `trying ${this.#call.method} again for up to ${String(seconds)} s`;
      await this.#context.stderr.write(`hapax: ${this.#ending}; ${again}\n`);
    }
    await this.#context.wait(delayMs, signal);
  }

  /** Turns `unreachable` into an error with a text for the person; others, and the reason of a signal, stay as they are. */
  failureOf(error: unknown): unknown {
    return isHapaxError(error, "unreachable")
      ? unreachable(this.#call.target, error, `no answer within ${secondsOf(this.#timeoutMs)} s`)
      : error;
  }
}

const secondsOf = (ms: number): string => String(Math.round(ms / 1000));

function transportOf(context: Context): Transport {
  return fetchTransport((input, init) => context.fetch(input, { ...init, redirect: "manual" }));
}

function optionsOf(
  context: Context,
  { token, url }: Target,
  transport: Transport,
  totalMs: number,
) {
  const nowMs = (): number => context.nowMs();
  // The person waits for the answer: its timers keep the process alive.
  const clock = { ...waitingClock, nowMs, steadyMs: nowMs };
  const { random } = context;
  const retry = { ...PAUSES, totalMs };
  return resolveClientOptions({ token, transport, clock, random, retry }, url);
}

function requestOf(call: CliCall): Call {
  const { method, body, signal } = call;
  const headers = new Headers(call.target.headers);
  for (const [name, value] of Object.entries(call.headers ?? {})) headers.set(name, value);
  return { method, url: urlOf(call), headers: Object.fromEntries(headers), body, signal };
}

function urlOf(call: CliCall): string {
  const url = new URL(call.target.url);
  for (const [name, value] of Object.entries(call.query ?? {})) {
    if (value !== undefined) url.searchParams.set(name, value);
  }
  return url.href;
}

/** `silence` is what to say if the attempt has ended by itself, without a cause. */
export function unreachable(target: Target, error: HapaxError, silence: string): CommandFailure {
  const { origin } = new URL(target.url);
  return new CommandFailure(
    EXIT.unreachable,
    `cannot reach ${origin} (${printable(reasonOf(error.cause) ?? silence)})`,
    [
      "is the server running? start one with: hapax serve; or give another one with --url or HAPAX_URL",
    ],
    {},
    { cause: error },
  );
}

/** `fetch failed` alone says nothing: what failed is its cause. */
function reasonOf(error: unknown): string | undefined {
  if (error === undefined) return undefined;
  const cause: unknown = error instanceof Error && error.cause !== undefined ? error.cause : error;
  return systemCode(cause) ?? (cause instanceof Error ? cause.message : String(cause));
}

/** The failure that a refusing answer means, in the server's own words. */
export function refusal(target: Target, answer: CliAnswer): CommandFailure {
  const problem = parseProblem(answer);
  const exitCode = answer.status === 404 || answer.status === 410 ? EXIT.notFound : EXIT.refused;
  const code = problem.code === undefined ? "" : ` ${problem.code}`;
  const title = problem.title ?? standardTitle(answer);
  const isForeign = problem.code === undefined && isPage(answer);
  const ours = accessAdvice({ ...problem, status: answer.status }, target.token !== undefined);
  // The server's help is for programs too; a person at a terminal gets the command.
  const help = ours.length > 0 ? ours : [problem.help];
  const advice = isForeign
    ? [NO_SERVER]
    : [problem.detail, ...help].filter((line) => line !== undefined);
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
function isPage(answer: CliAnswer): boolean {
  return /^text\/html\b/i.test(answer.header("content-type") ?? "");
}

function standardTitle(answer: CliAnswer): string {
  if (answer.status >= 300 && answer.status < 400) {
    const location = answer.header("location") ?? "nowhere";
    return `The server redirects to ${location}; give that URL if you trust it`;
  }
  if (answer.status === 404) return "No such stream";
  if (answer.status === 410) return "The stream, or this part of it, is gone";
  if (answer.header(STREAM_CLOSED) === "true") return "The stream is closed";
  return "The server refused";
}

const DETAIL_CHARS_MAX = 500;

function parseProblem(answer: CliAnswer): ProblemDocument {
  const text = new TextDecoder().decode(answer.body.subarray(0, 64 * 1024)).trim();
  const isJson = /^application\/([\w.-]+\+)?json/i.test(answer.header("content-type") ?? "");
  if (text === "") return {}; // Every answer to HEAD.
  if (!isJson) return { detail: text.slice(0, DETAIL_CHARS_MAX) };
  try {
    return problemFields(JSON.parse(text));
  } catch {
    return { detail: text.slice(0, DETAIL_CHARS_MAX) };
  }
}

function problemFields(value: unknown): ProblemDocument {
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
