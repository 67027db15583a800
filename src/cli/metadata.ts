/** `hapax head` and `hapax list`: what there is, without reading it. */

import { CLIENT_OPTIONS, type Command, type Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT } from "./failure.ts";
import { type Answer, refusal, send } from "./http.ts";
import { resolvePath, resolveStream, streamPath, type Target } from "./target.ts";
import { countOf, createPaint, formatPairs, formatTable, printable } from "./terminal.ts";

async function runHead(invocation: Invocation, context: Context): Promise<number> {
  const target = resolveStream(invocation, context, invocation.positionals[0] ?? "");
  const answer = await send(context, { target, method: "HEAD" });
  if (answer.status !== 200) throw refusal(target, answer);
  const header = (name: string): string | undefined => answer.headers.get(name) ?? undefined;
  const closed = header("stream-closed") === "true";
  const ttl = header("stream-ttl");
  const expiresAt = header("stream-expires-at");
  const contentType = header("content-type") ?? "";
  const nextOffset = header("stream-next-offset") ?? "";
  if (invocation.has("json")) {
    const ttlSeconds = ttl === undefined ? undefined : Number(ttl);
    const facts = { path: target.label, contentType, nextOffset, closed, ttlSeconds, expiresAt };
    await context.stdout.write(`${JSON.stringify(facts)}\n`);
    return EXIT.done;
  }
  const pairs: [string, string][] = [
    ["stream", target.label],
    ["content type", contentType],
    ["next offset", nextOffset],
    ["closed", closed ? "yes" : "no"],
  ];
  if (ttl !== undefined) pairs.push(["time to live", `${ttl} s after the last use`]);
  if (expiresAt !== undefined) pairs.push(["expires at", expiresAt]);
  await context.stdout.write(formatPairs(pairs, createPaint(context.stdout, context.env)));
  return EXIT.done;
}

const LIST_PATH = "/_hapax/streams";
const LIST_PAGE = "1000";

interface Listed {
  readonly path: string;
  readonly contentType: string;
  readonly nextOffset: string;
  readonly closed: boolean;
}

async function runList(invocation: Invocation, context: Context): Promise<number> {
  const target = resolvePath(invocation, context, LIST_PATH);
  const argument = invocation.positionals[0];
  const prefix = argument === undefined || argument === "" ? undefined : streamPath(argument);
  const streams: Listed[] = [];
  let after: string | undefined;
  do {
    const query = { prefix, after, limit: LIST_PAGE };
    const answer = await send(context, { target, method: "GET", query });
    if (answer.status !== 200) throw listRefusal(target, answer);
    const page = parsePage(target, answer);
    if (invocation.has("json")) {
      await context.stdout.write(page.raw.map((stream) => `${JSON.stringify(stream)}\n`).join(""));
    }
    streams.push(...page.streams);
    // A server that repeats itself must not make us ask for ever.
    if (page.next !== undefined && page.next === after) throw badListing(target);
    after = page.next;
  } while (after !== undefined);
  if (!invocation.has("json")) await printStreams(context, streams, prefix);
  return EXIT.done;
}

async function printStreams(
  context: Context,
  streams: readonly Listed[],
  prefix: string | undefined,
): Promise<void> {
  if (streams.length === 0) {
    const where = prefix === undefined ? "" : ` under ${printable(prefix)}`;
    await context.stderr.write(`no streams${where}\n`);
    return;
  }
  const rows = streams.map((stream) => [
    stream.path,
    stream.contentType,
    stream.nextOffset,
    stream.closed ? "closed" : "open",
  ]);
  const header = ["STREAM", "CONTENT TYPE", "NEXT OFFSET", "STATE"];
  await context.stdout.write(formatTable(header, rows, createPaint(context.stdout, context.env)));
  if (context.stderr.isTerminal) {
    await context.stderr.write(`${countOf(streams.length, "stream")}\n`);
  }
}

interface ListPage {
  readonly raw: readonly unknown[];
  readonly streams: readonly Listed[];
  readonly next: string | undefined;
}

function parsePage(target: Target, answer: Answer): ListPage {
  const body: unknown = parseJson(target, answer);
  const fields = new Map<string, unknown>(Object.entries(body ?? {}));
  const raw = fields.get("streams");
  const next = fields.get("next");
  if (!Array.isArray(raw)) throw badListing(target);
  const streams = raw.map((entry: unknown): Listed => {
    const stream = new Map<string, unknown>(Object.entries(entry ?? {}));
    const text = (name: string): string => {
      const value = stream.get(name);
      return typeof value === "string" ? value : "";
    };
    return {
      path: text("path"),
      contentType: text("contentType"),
      nextOffset: text("nextOffset"),
      closed: stream.get("closed") === true,
    };
  });
  return { raw, streams, next: typeof next === "string" && next !== "" ? next : undefined };
}

function parseJson(target: Target, answer: Answer): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(answer.body));
  } catch (cause) {
    const { message, advice } = badListing(target);
    throw new CommandFailure(EXIT.refused, message, advice, {}, { cause });
  }
}

function badListing(target: Target): CommandFailure {
  return new CommandFailure(EXIT.refused, `${target.url} does not answer like a listing`);
}

function listRefusal(target: Target, answer: Answer): CommandFailure {
  const failure = refusal(target, answer);
  if (answer.status !== 404) return failure;
  return failure.withAdvice(["listing is an extension of Hapax: other servers may not have it"]);
}

export const headCommand: Command = {
  name: "head",
  summary: "show what is known about a stream",
  usage: ["hapax head <stream> [options]"],
  positionalsMin: 1,
  positionalsMax: 1,
  options: [...CLIENT_OPTIONS],
  examples: [["type, tail and state", "hapax head orders"]],
  run: runHead,
};

export const listCommand: Command = {
  name: "list",
  summary: "list streams",
  usage: ["hapax list [prefix] [options]"],
  positionalsMin: 0,
  positionalsMax: 1,
  options: [...CLIENT_OPTIONS],
  details: [
    "A prefix is a name or a path, like a stream: orders/ lists all below /v1/stream/orders/.",
  ],
  examples: [
    ["all streams", "hapax list"],
    ["as JSON, one stream a line", "hapax list orders/ --json"],
  ],
  run: runList,
};
