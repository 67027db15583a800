/** `hapax create`. Creating twice with the same configuration is one creation. */

import {
  STREAM_CLOSED,
  STREAM_COMPACT_KEY,
  STREAM_EXPIRES_AT,
  STREAM_FORKED_FROM,
  STREAM_FORK_OFFSET,
  STREAM_FORK_SUB_OFFSET,
  STREAM_NEXT_OFFSET,
  STREAM_RETENTION,
  STREAM_TTL,
} from "../protocol/header-names.ts";
import { CLIENT_OPTIONS, type Command, type Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT, usageFailure } from "./failure.ts";
import { type CliAnswer, refusal, send } from "./http.ts";
import { KEY_OPTIONS, keyFacts, keyOptionHeaders } from "./key-options.ts";
import { COMPACTION_OPTIONS, compactionFacts, compactionOf } from "./compaction.ts";
import { retentionFacts, RULE_OPTIONS, ruleOf } from "./retention.ts";
import { encodePath, resolveStream, streamPath, type Target } from "./target.ts";
import { createPaint, printable } from "./terminal.ts";

async function runCreate(invocation: Invocation, context: Context): Promise<number> {
  const target = resolveStream(invocation, context, invocation.positionals[0] ?? "");
  const answer = await send(context, { target, method: "PUT", headers: createHeaders(invocation) });
  // 200 is also what a server answers that does not know the condition.
  if (invocation.has("if-absent") && (answer.status === 200 || answer.status === 412)) {
    throw present(target, answer);
  }
  if (answer.status !== 200 && answer.status !== 201) throw refusal(target, answer);
  const isCreated = answer.status === 201;
  const nextOffset = answer.header(STREAM_NEXT_OFFSET) ?? "";
  const contentType = answer.header("content-type") ?? "";
  if (invocation.has("json")) {
    const closed = answer.header(STREAM_CLOSED) === "true";
    const facts = { path: target.label, created: isCreated, contentType, nextOffset, closed };
    const more = { ...keyFacts(answer), ...retentionFacts(answer), ...compactionFacts(answer) };
    await context.stdout.write(`${JSON.stringify({ ...facts, ...more })}\n`);
    return EXIT.done;
  }
  const paint = createPaint(context.stdout, context.env);
  const verb = isCreated ? paint("green", "created") : "already exists:";
  const type = contentType === "" ? "" : ` (${contentType})`;
  await context.stdout.write(`${verb} ${target.label}${type}, next offset ${nextOffset}\n`);
  return EXIT.done;
}

function present(target: Target, answer: CliAnswer): CommandFailure {
  const tail = answer.header(STREAM_NEXT_OFFSET) ?? undefined;
  const code = answer.status === 412 ? { code: "stream_present" } : {};
  return new CommandFailure(
    EXIT.refused,
    `not created: there is a stream already: ${target.label}`,
    [
      ...(tail === undefined ? [] : [`its next offset is ${printable(tail)}`]),
      "choose another name, or leave out --if-absent to accept the stream that is there",
    ],
    { status: answer.status, ...code, ...(tail === undefined ? {} : { tail }) },
  );
}

function createHeaders(invocation: Invocation): Record<string, string> {
  const source = invocation.value("fork-from");
  const contentType = invocation.value("content-type");
  const headers: Record<string, string> = {};
  const set = (name: string, value: string | undefined): void => {
    if (value !== undefined) headers[name] = value;
  };
  // A fork takes the type of its source by default.
  set("content-type", contentType ?? (source === undefined ? "application/json" : undefined));
  set(STREAM_TTL, invocation.value("ttl"));
  set(STREAM_EXPIRES_AT, invocation.value("expires-at"));
  set(STREAM_CLOSED, invocation.has("closed") ? "true" : undefined);
  set("if-none-match", invocation.has("if-absent") ? "*" : undefined);
  Object.assign(headers, keyOptionHeaders(invocation));
  set(STREAM_RETENTION, ruleOf(invocation));
  set(STREAM_COMPACT_KEY, compactionOf(invocation));
  const offset = invocation.value("fork-offset");
  const subOffset = invocation.value("fork-sub-offset");
  if (source === undefined && (offset ?? subOffset) !== undefined) {
    throw usageFailure("--fork-offset and --fork-sub-offset need --fork-from");
  }
  set(STREAM_FORKED_FROM, source === undefined ? undefined : encodePath(streamPath(source)));
  set(STREAM_FORK_OFFSET, offset);
  set(STREAM_FORK_SUB_OFFSET, subOffset);
  return headers;
}

export const createCommand: Command = {
  name: "create",
  summary: "create a stream, or a fork of one",
  usage: ["hapax create <stream> [options]"],
  positionalsMin: 1,
  positionalsMax: 1,
  options: [
    { name: "content-type", value: "type", help: "type of its data (default application/json)" },
    {
      name: "ttl",
      value: "seconds",
      help: "expires this many seconds after the last read or write",
    },
    { name: "expires-at", value: "time", help: "expires at a time such as 2030-01-31T12:00:00Z" },
    { name: "closed", help: "create it closed" },
    { name: "if-absent", help: "refuse if there is a stream already, with any options" },
    ...KEY_OPTIONS,
    ...RULE_OPTIONS,
    ...COMPACTION_OPTIONS,
    { name: "fork-from", value: "stream", help: "start with the data of another stream" },
    { name: "fork-offset", value: "offset", help: "… up to this offset (default: its tail)" },
    { name: "fork-sub-offset", value: "count", help: "… and this many records or bytes more" },
    ...CLIENT_OPTIONS,
  ],
  details: [
    "Creating a stream twice with the same options is one creation. With --if-absent the server refuses the",
    "second one, with exit code 1. The defaults for keys are options of the server (see hapax help serve).",
  ],
  examples: [
    ["a stream of JSON records", "hapax create orders"],
    [
      "plain text that expires an hour after its last use",
      "hapax create log --content-type text/plain --ttl 3600",
    ],
    ["only if it does not exist yet", "hapax create jobs/42 --if-absent"],
    [
      "remember keys for a week, and never forget one earlier",
      "hapax create payments --key-window 604800 --key-overflow reject",
    ],
    ["data of the last 30 days only", "hapax create log --retention-seconds 2592000"],
    [
      "a changelog: the newest record of each user stays",
      "hapax create users --compact-key user.id --compact-tombstone value",
    ],
    ["a copy to experiment with", "hapax create orders-test --fork-from orders"],
  ],
  run: runCreate,
};
