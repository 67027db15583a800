/** Copies of streams over HTTP, and to and from lines of JSON: which places there are, and what goes where. */

import { REGISTRY_SEGMENT } from "../../streams/core/registry.ts";
import { quote } from "../arguments.ts";
import type { Invocation } from "../command.ts";
import type { Context } from "../context.ts";
import { type Bar, createBar, formatBytes } from "../directory.ts";
import { CommandFailure, EXIT, usageFailure } from "../failure.ts";
import { refusal } from "../http.ts";
import { readPages } from "../listing.ts";
import { encodePath, type Target } from "../target.ts";
import { countOf, createPaint, printable } from "../terminal.ts";
import { tokenOf } from "../token.ts";
import { parseCountOption } from "../arguments.ts";
import { copyStream } from "./copy-stream.ts";
import { openLines } from "./lines-source.ts";
import { LinesFile, LinesTarget } from "./lines-target.ts";
import { bytesBefore, type SourceStream, type StreamFacts, type StreamCopy } from "./page.ts";
import { type CopyCall, askHead, openSource } from "./server-source.ts";
import { ServerTarget, type TargetStream } from "./server-target.ts";

export type CopyPlace =
  | { readonly kind: "lines"; readonly path: string }
  /** A server, or one stream of it. */
  | { readonly kind: "http"; readonly url: URL; readonly isServer: boolean };

/** Undefined for the place of a whole store: a directory, or a database. */
export function placeOf(text: string): CopyPlace | undefined {
  if (text === "-" || text.endsWith(".jsonl")) return { kind: "lines", path: text };
  if (!/^https?:\/\//i.test(text)) return undefined;
  if (!URL.canParse(text)) throw usageFailure(`${quote(text)} is not a URL`);
  const url = new URL(text);
  if (url.username !== "" || url.password !== "" || url.search !== "" || url.hash !== "") {
    throw usageFailure(`${quote(text)}: a URL here has a host and a path, and nothing else`);
  }
  return { kind: "http", url, isServer: url.pathname === "/" };
}

interface Copying {
  readonly call: CopyCall;
  readonly invocation: Invocation;
  readonly from: CopyPlace;
  readonly to: CopyPlace;
  readonly targetOf: (facts: StreamFacts) => TargetStream;
}

export async function runStreamsCopy(
  invocation: Invocation,
  context: Context,
  from: CopyPlace,
  to: CopyPlace,
): Promise<number> {
  checkPlaces(invocation, from, to);
  const range = { min: 0, max: 86_400, fallback: 60 };
  const retrySeconds = parseCountOption("retry-seconds", invocation.value("retry-seconds"), range);
  const [ended, stopped] = [new AbortController(), new AbortController()];
  const isFollowing = invocation.has("follow");
  const forget = context.onSignal((signal) => {
    // The first signal ends the following of the source, the second one everything.
    if (isFollowing && !stopped.signal.aborted) stopped.abort(signal);
    else ended.abort(signal);
  });
  const until = isFollowing ? stopped.signal : undefined;
  const call = { context, retrySeconds, signal: ended.signal, until };
  const lines = to.kind === "lines" ? new LinesFile(context, to.path) : undefined;
  try {
    const tokens = {
      from: await tokenFor(invocation, context, "from"),
      to: await tokenFor(invocation, context, "to"),
    };
    await lines?.open();
    const targetOf = (facts: StreamFacts): TargetStream =>
      lines === undefined
        ? new ServerTarget(call, httpTarget(to, tokens.to, facts.path), facts)
        : new LinesTarget(lines, facts);
    await copyAll({ call, invocation, from, to, targetOf }, tokens.from);
    return EXIT.done;
  } catch (error) {
    if (!ended.signal.aborted) throw error;
    const code = ended.signal.reason === "SIGTERM" ? 143 : 130;
    throw new CommandFailure(code, "interrupted", ["run the same command again to go on"]);
  } finally {
    forget();
    await lines?.close();
  }
}

function checkPlaces(invocation: Invocation, from: CopyPlace, to: CopyPlace): void {
  if (from.kind === "lines" && to.kind === "lines") {
    throw usageFailure("a copy needs a server on one side");
  }
  if (from.kind === "lines" && invocation.has("follow")) {
    throw usageFailure("--follow is for a server: a file does not grow");
  }
  const isMany = from.kind === "http" && from.isServer;
  if (isMany && to.kind === "http" && !to.isServer) {
    throw usageFailure("all streams cannot be copied into one", [
      "give the URL of the other server without a path",
    ]);
  }
  if (!isMany && invocation.value("prefix") !== undefined) {
    throw usageFailure("--prefix is for copies of a whole server");
  }
}

type Token = Awaited<ReturnType<typeof tokenOf>>;

const tokenFor = (invocation: Invocation, context: Context, side: "from" | "to"): Promise<Token> =>
  tokenOf(invocation, context, {
    option: `${side}-token-file`,
    variable: `HAPAX_${side.toUpperCase()}_TOKEN`,
  });

/** The stream of a place; a place that is a server has it at the path of the source. */
function httpTarget(place: CopyPlace, token: Token, path: string): Target {
  if (place.kind !== "http") throw new TypeError("not a server");
  const { url, isServer } = place;
  const href = isServer ? new URL(encodePath(path), url.origin).href : url.href;
  return { url: href, headers: new Headers(), token, label: isServer ? path : decoded(url) };
}

function decoded(url: URL): string {
  try {
    return decodeURIComponent(url.pathname);
  } catch {
    return url.pathname;
  }
}

async function copyAll(copying: Copying, token: Token): Promise<void> {
  const { from, to } = copying;
  const reports = new Reports(copying);
  if (from.kind === "lines") {
    const { file, sections } = await openLines(from.path);
    try {
      const paths = new Set(sections.map(({ facts }) => facts.path));
      if (to.kind === "http" && !to.isServer && paths.size > 1) throw manyStreams(from.path);
      for (const source of sections) {
        if (paths.size > 1 && isRegistry(source.facts.path)) await reports.skip(source.facts.path);
        else await reports.copy(source);
      }
    } finally {
      await file.close();
    }
  } else if (from.isServer) {
    await copyServer(copying, reports, from.url, token);
  } else {
    const target = httpTarget(from, token, "");
    const source = await openSource(copying.call, target, target.label);
    if (source === undefined) throw refusal(target, await askHead(copying.call, target));
    await reports.copy(source);
  }
  await reports.finish();
}

const PASS_MS = 1000;

/** Passes over the list, until one finds nothing new, or as long as the source is followed. */
async function copyServer(
  copying: Copying,
  reports: Reports,
  url: URL,
  token: Token,
): Promise<void> {
  const { context, signal, until } = copying.call;
  const list = {
    url: `${url.origin}/_hapax/streams`,
    headers: new Headers(),
    token,
    label: url.host,
  };
  const prefix = copying.invocation.value("prefix");
  const seen = new Map<string, string>();
  // A stream is copied up to its tail and then left: to wait for one would hold up all others.
  const call = { ...copying.call, until: undefined };
  for (;;) {
    for await (const entries of readPages(context, list, "streams", { prefix: pathOf(prefix) })) {
      for (const entry of entries) {
        signal.throwIfAborted();
        if (until?.aborted === true) return;
        const path = entry.text("path");
        const state = `${entry.text("life")} ${entry.text("nextOffset")} ${String(entry.isTrue("closed"))}`;
        if (seen.get(path) === state) continue;
        if (copying.to.kind === "http" && isRegistry(path)) {
          if (!seen.has(path)) await reports.skip(path);
          seen.set(path, state);
          continue;
        }
        const source = await openSource(
          call,
          httpTarget({ kind: "http", url, isServer: true }, token, path),
          path,
        );
        // Deleted since it was listed.
        if (source !== undefined) await reports.copy(source);
        seen.set(path, state);
      }
    }
    if (until === undefined || until.aborted) return;
    try {
      await context.wait(PASS_MS, AbortSignal.any([signal, until]));
    } catch (error) {
      if (!until.aborted) throw error;
    }
  }
}

/** What a target writes into a registry of its own would be in the way of the copy, when it is continued. */
const isRegistry = (path: string): boolean => path.endsWith(`/${REGISTRY_SEGMENT}`);

/** A name, as everywhere else: `orders/` is all below /v1/stream/orders/. */
function pathOf(prefix: string | undefined): string | undefined {
  if (prefix === undefined || prefix.startsWith("/")) return prefix;
  return `/v1/stream/${prefix}`;
}

function manyStreams(path: string): CommandFailure {
  return usageFailure(`${path} has more than one stream`, [
    "give the URL of the server without a path: each stream gets the path that it had",
  ]);
}

/** The result of each stream: said when it is done, and summed up at the end. */
class Reports {
  readonly #copying: Copying;
  readonly #bar: Bar;
  /** On stderr, when stdout has the data. */
  readonly #out: Context["stdout"];
  #streams = new Set<string>();
  #bytes = 0;

  constructor(copying: Copying) {
    this.#copying = copying;
    const { context } = copying.call;
    this.#bar = createBar(copying.invocation, context, "copying");
    const isData = copying.to.kind === "lines" && copying.to.path === "-";
    this.#out = isData ? context.stderr : context.stdout;
  }

  async copy(source: SourceStream): Promise<void> {
    const { call, targetOf } = this.#copying;
    try {
      const report = await copyStream({
        source,
        target: targetOf(source.facts),
        until: call.until,
        isAgain: this.#streams.has(source.facts.path),
        show: (bytes, total) => this.#bar.show(bytes, total),
      });
      await this.#bar.finish();
      await this.#tell(report);
    } finally {
      await this.#bar.finish();
    }
  }

  async skip(path: string): Promise<void> {
    const what = `${path} is left out: a registry is about the streams of its own server`;
    const words = `${what}. To have one, create it there before the copy`;
    await this.#copying.call.context.stderr.write(`hapax: ${printable(words)}\n`);
  }

  async #tell(report: StreamCopy): Promise<void> {
    const isNew = !this.#streams.has(report.stream);
    this.#streams.add(report.stream);
    this.#bytes += report.bytes;
    if (!isNew && report.bytes === 0 && !report.closed) return;
    await this.#out.write(`${this.#line(report)}\n`);
    if (isNew && report.compactKey !== undefined && !report.closed) {
      const what = `${report.stream} is a changelog (${report.compactKey}), and its copy keeps every record`;
      const words = `${what}: when it is complete, make it one by hapax compaction`;
      await this.#copying.call.context.stderr.write(`hapax: ${printable(words)}\n`);
    }
  }

  #line(report: StreamCopy): string {
    const { context } = this.#copying.call;
    if (this.#copying.invocation.has("json")) return JSON.stringify(report);
    const { stream, bytes, end, closed, sha256 } = report;
    const paint = createPaint(this.#out, context.env);
    const state = closed ? ", closed" : "";
    const proof = sha256 === undefined ? "" : `, equal on both sides: SHA-256 ${sha256}`;
    const size = bytes === 0 ? "nothing new" : formatBytes(bytes);
    return `${paint("green", "copied")} ${printable(stream)}: ${size}, up to ${String(bytesBefore(end))}${state}${proof}`;
  }

  async finish(): Promise<void> {
    if (this.#copying.invocation.has("json") || this.#streams.size === 1) return;
    await this.#out.write(
      `${countOf(this.#streams.size, "stream")}, ${formatBytes(this.#bytes)} in this run\n`,
    );
  }
}
