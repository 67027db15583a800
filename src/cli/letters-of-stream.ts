/** The dead letters of a pipeline: records in a stream of a server. */

import { HapaxError } from "../base/errors.ts";
import { connectServer } from "../client/processing.ts";
import type { DeadLetter } from "../client/processing/dead-letter.ts";
import type { Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT, usageFailure } from "./failure.ts";
import type { LetterSource, ListedLetter } from "./letter-source.ts";
import { resolveRoute, streamPath, type Target } from "./target.ts";
import { printable } from "./terminal.ts";
import { accessAdvice } from "./token.ts";

/** A person waits: longer than a short absence is not worth it. */
const RETRY_MS = 10_000;

/** The letters of the stream that the argument names. */
export function lettersOfStream(
  invocation: Invocation,
  context: Context,
  argument: string,
): LetterSource {
  const { target, stream } = resolveRoute(invocation, context, argument, "");
  const given = invocation.value("to");
  if (given !== undefined && /^https?:\/\//i.test(given)) {
    throw usageFailure("--to is a stream of the same server: a name or a path");
  }
  const to = given === undefined ? undefined : streamPath(given);
  const hapax = connectServer(target.url, {
    token: target.token,
    headers: Object.fromEntries(target.headers),
    fetch: context.fetch,
    random: context.random,
    retry: { totalMs: RETRY_MS },
  });
  const letters = hapax.deadLetters(stream);
  return {
    label: stream,
    warning: "They stay in the stream, and are listed no more. This cannot be undone.",
    list: async (filter, max) => (await letters.list({ ...filter, max })).map(listed),
    replay: (filter) => letters.replay(filter, { to }),
    discard: (ids) => letters.discard(ids),
    failureOf: (error, action) =>
      error instanceof HapaxError ? failureOf(error, target, action) : error,
    close: () => Promise.resolve(),
  };
}

/** As it is stored: JSON with every digit, bytes in base64. */
function listed({
  id,
  stream,
  offset,
  attempts,
  at,
  reason,
  ...content
}: DeadLetter): ListedLetter {
  const facts = { id, from: stream, key: undefined, attempts, at, reason, facts: { offset } };
  return { ...facts, content: contentOf(content) };
}

function contentOf({
  record,
  recordText,
  recordBytes,
}: Pick<DeadLetter, "record" | "recordText" | "recordBytes">): string {
  if (recordText !== undefined) return `"record":${recordText}`;
  if (record instanceof Uint8Array) return `"base64":"${Buffer.from(record).toString("base64")}"`;
  return `"recordBytes":${String(recordBytes)}`;
}

function failureOf(error: HapaxError, { label, token }: Target, action: string): CommandFailure {
  const { code, status, message } = error;
  const isMissing = code === "stream_not_found" || code === "stream_gone";
  const isUnknown = "outcome" in error && error.outcome === "unknown";
  const exitCode = isMissing
    ? EXIT.notFound
    : code === "unreachable"
      ? EXIT.unreachable
      : EXIT.refused;
  const advice = isUnknown
    ? [`whether it was done is not known: the same ${action} again is safe`]
    : accessAdvice(error, token !== undefined);
  const problem = { status, code, detail: message, help: error.help };
  const words = `${label}: ${printable(message)} (${String(status)} ${code})`;
  return new CommandFailure(exitCode, words, advice, problem, { cause: error });
}
