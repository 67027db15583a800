/**
 * A scripted life of a journal, in steps that can all be repeated under the same identity: creates, appends,
 * rolls, snapshots, recycling, compaction, a fork, a close, trims, deletes. What must be there after each step is known.
 */

import { isDeepStrictEqual } from "node:util";
import { startNodeServer } from "../../src/streams/runtimes/node.ts";
import { openFileStore } from "../../src/streams/stores/file.ts";
import { call, type HttpAnswer } from "../protocol/raw-http.ts";
import type { JournalOptions } from "./processes.ts";

/** Small enough for the script to fill several segments; snapshots are written when a step says so. */
export const SCRIPT_JOURNAL = {
  segmentBytes: 32 * 1024,
  snapshotBytes: 1024 * 1024,
  cacheBytes: 4 * 1024,
} satisfies JournalOptions;

type Step =
  | { readonly kind: "create"; readonly stream: string }
  | { readonly kind: "fork"; readonly stream: string; readonly source: string }
  | {
      readonly kind: "append";
      readonly stream: string;
      readonly number: number;
      readonly body: string;
      readonly closes?: boolean;
    }
  | { readonly kind: "delete"; readonly stream: string }
  | { readonly kind: "trim"; readonly stream: string; readonly before: number }
  | { readonly kind: "maintain" };

interface Content {
  /** What is left of it. */
  readonly text: string;
  readonly isClosed: boolean;
  /** Where it begins: what is before it was trimmed. */
  readonly earliest: number;
}

/** Streams by name; one that does not exist is not in it. */
type State = ReadonlyMap<string, Content>;

const LOG_BYTES = 4000;
const STREAMS = ["keep", "close", "junk", "more-junk", "large", "fork", "log"] as const;

export const SCRIPT = makeScript();

function makeScript(): readonly Step[] {
  const steps: Step[] = [];
  const numbers = new Map<string, number>();
  const create = (stream: string): void => void steps.push({ kind: "create", stream });
  const append = (stream: string, bytes: number, closes = false): void => {
    const number = numbers.get(stream) ?? 0;
    numbers.set(stream, number + 1);
    const unit = `${stream}:${number};`;
    const body = unit.repeat(Math.ceil(bytes / unit.length)).slice(0, bytes);
    steps.push({ kind: "append", stream, number, body, closes });
  };
  const maintain = (): void => void steps.push({ kind: "maintain" });
  const trim = (before: number): void => void steps.push({ kind: "trim", stream: "log", before });
  for (const stream of ["keep", "close", "junk", "log"]) create(stream);
  for (let round = 0; round < 4; round += 1) {
    append("keep", 700);
    append("junk", 11_000);
    append("close", 300);
    append("log", LOG_BYTES);
  }
  maintain();
  // Between two appends, inside one, and everything.
  trim(8000);
  steps.push({ kind: "delete", stream: "junk" });
  create("more-junk");
  append("more-junk", 20_000);
  append("keep", 2000);
  append("log", LOG_BYTES);
  trim(13_000);
  maintain();
  steps.push({ kind: "fork", stream: "fork", source: "keep" });
  append("fork", 500);
  append("more-junk", 20_000);
  steps.push({ kind: "delete", stream: "more-junk" });
  maintain();
  append("close", 300, true);
  create("large");
  append("large", 50_000);
  append("keep", 15_000);
  append("fork", 15_000);
  trim(20_000);
  append("log", LOG_BYTES);
  maintain();
  append("keep", 700);
  return steps;
}

/** What must be there after so many steps. */
export function stateAfter(count: number): State {
  const state = new Map<string, Content>();
  const empty: Content = { text: "", isClosed: false, earliest: 0 };
  for (const step of SCRIPT.slice(0, count)) {
    if (step.kind === "maintain") continue;
    const before = state.get(step.stream) ?? empty;
    if (step.kind === "create") state.set(step.stream, empty);
    if (step.kind === "delete") state.delete(step.stream);
    if (step.kind === "fork") {
      state.set(step.stream, { ...empty, text: state.get(step.source)?.text ?? "" });
    }
    if (step.kind === "trim") state.set(step.stream, trimmed(step, before));
    if (step.kind !== "append") continue;
    const text = before.text + step.body;
    state.set(step.stream, { ...before, text, isClosed: step.closes ?? false });
  }
  return state;
}

/** A cut is between two appends; those of the log have the same size. */
function trimmed({ before }: Extract<Step, { kind: "trim" }>, content: Content): Content {
  const earliest = Math.max(content.earliest, before - (before % LOG_BYTES));
  return { ...content, text: content.text.slice(earliest - content.earliest), earliest };
}

export interface Outcome {
  /** Steps that were answered with success, from the first. */
  readonly acked: number;
  /** The answer that was none, if one came at all. */
  readonly refusal: HttpAnswer | undefined;
}

/** Runs the steps one after the other, up to the first that is not answered or refused. */
export async function runScript(url: string, maintain: () => Promise<unknown>): Promise<Outcome> {
  for (const [acked, step] of SCRIPT.entries()) {
    if (step.kind === "maintain") {
      const isDone = await maintain().then(
        () => true,
        () => false,
      );
      if (!isDone) return { acked, refusal: undefined };
      continue;
    }
    const answer = await perform(url, step).catch(() => undefined);
    if (answer === undefined) return { acked, refusal: undefined };
    if (!isSuccess(step, answer)) return { acked, refusal: answer };
  }
  return { acked: SCRIPT.length, refusal: undefined };
}

function isSuccess(step: Step, { status, headers }: HttpAnswer): boolean {
  if (status === 200 || status === 201 || status === 204) return true;
  // The second time: a stream that was closed later refuses what came before its close.
  if (status === 409 && headers["stream-closed"] === "true") return true;
  if (status === 409 && step.kind === "create" && step.stream === "close") return true;
  return status === 404 && step.kind === "delete";
}

function perform(url: string, step: Exclude<Step, { kind: "maintain" }>): Promise<HttpAnswer> {
  const path = `/v1/stream/${step.stream}`;
  const headers: Record<string, string> = { "content-type": "text/plain" };
  switch (step.kind) {
    case "create":
      return call("PUT", url, path, { headers });
    case "fork":
      headers["stream-forked-from"] = `/v1/stream/${step.source}`;
      return call("PUT", url, path, { headers });
    case "append":
      headers["producer-id"] = "script";
      headers["producer-epoch"] = "0";
      headers["producer-seq"] = String(step.number);
      if (step.closes === true) headers["stream-closed"] = "true";
      return call("POST", url, path, { headers, body: step.body });
    case "delete":
      return call("DELETE", url, path);
    case "trim": {
      const before = `0000000000000000_${String(step.before).padStart(16, "0")}`;
      return call("POST", url, `/_hapax/trim?stream=${path}&before=${before}`);
    }
    default:
      return step satisfies never;
  }
}

export async function readState(url: string, streams: readonly string[] = STREAMS): Promise<State> {
  const state = new Map<string, Content>();
  for (const stream of streams) {
    let text = "";
    let earliest = 0;
    for (let offset = "-1"; ;) {
      const answer = await call("GET", url, `/v1/stream/${stream}?offset=${offset}`);
      if (answer.status === 404) break;
      if (answer.status !== 200) throw new Error(`${stream}: ${answer.status} ${answer.text}`);
      text += answer.text;
      earliest = Number(answer.headers["stream-earliest-offset"]?.slice(17) ?? 0);
      offset = String(answer.headers["stream-next-offset"]);
      if (answer.headers["stream-up-to-date"] !== "true") continue;
      state.set(stream, {
        text,
        isClosed: answer.headers["stream-closed"] === "true",
        earliest,
      });
      break;
    }
  }
  return state;
}

/**
 * Opens what a crash has left, and says what is wrong: every step that was answered must be there and at
 * most one more; after the whole script again everything is there once, also after a further restart.
 */
export async function reopenAndRetry(dir: string, acked: number): Promise<readonly string[]> {
  const problems: string[] = [];
  try {
    await withServer(dir, async (url, maintain) => {
      const state = await readState(url);
      const isKept = [acked, acked + 1].some((count) =>
        isDeepStrictEqual(state, stateAfter(count)),
      );
      if (!isKept) problems.push(`after ${acked} answered steps: ${describe(state)}`);
      const again = await runScript(url, maintain);
      if (again.acked !== SCRIPT.length) {
        problems.push(`step ${again.acked} again: ${again.refusal?.text ?? "no answer"}`);
      }
      problems.push(...compareWithEnd("after the retry", await readState(url)));
    });
    await withServer(dir, async (url) => {
      problems.push(...compareWithEnd("after a further restart", await readState(url)));
    });
  } catch (error) {
    problems.push(`after ${acked} answered steps: ${String(error)}`);
  }
  return problems;
}

async function withServer(
  dir: string,
  run: (url: string, maintain: () => Promise<void>) => Promise<void>,
): Promise<void> {
  const store = await openFileStore(dir, SCRIPT_JOURNAL);
  const server = await startNodeServer({ store, port: 0 });
  try {
    await run(server.url, () => store.maintain());
  } finally {
    await server.stop();
  }
}

function compareWithEnd(when: string, state: State): readonly string[] {
  if (isDeepStrictEqual(state, stateAfter(SCRIPT.length))) return [];
  return [`${when}: ${describe(state)}`];
}

function describe(state: State): string {
  const facts = [...state].map(([stream, { text, isClosed, earliest }]) => [
    stream,
    earliest,
    text.length,
    isClosed,
  ]);
  return JSON.stringify(facts);
}
