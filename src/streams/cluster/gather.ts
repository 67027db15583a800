/** Puts the answers of all shards together: lists, what became of a transaction, and metrics. */

import { assert } from "../../base/assert.ts";
import { joinBytes } from "../../base/bytes.ts";
import { METRICS_TYPE } from "../../base/prometheus-text.ts";
import { HEADER } from "../../protocol/headers.ts";
import { parseQuery } from "../../protocol/values.ts";
import type { ShardId } from "../core/placement.ts";
import type { ServerAnswer, WholeAnswer } from "../server/exchange.ts";
import { json, parseLimit, queryText } from "../server/json.ts";
import type { Listed } from "./where.ts";

export interface ShardAnswer {
  readonly shard: ShardId;
  readonly answer: ServerAnswer;
}

const text = new TextDecoder();

export function wholeBodyOf(answer: ServerAnswer): Uint8Array {
  assert(!("live" in answer), "an answer that is put together with others is whole");
  if (answer.body === undefined) return new Uint8Array(0);
  return answer.body instanceof Uint8Array ? answer.body : joinBytes(answer.body);
}

/**
 * One page of a list. Each shard has given its first entries after `after`, up to `limit` or to where it stopped looking, and says
 * how far that is if there may be more. Nothing is shown beyond the nearest of these places: another shard may have entries before it.
 * Undefined: an answer is a refusal.
 */
export function mergeLists(
  answers: readonly ShardAnswer[],
  query: string,
  { member, key }: Listed,
): WholeAnswer | undefined {
  const limit = parseLimit(queryText(parseQuery(query), "limit"));
  const keyOf = (entry: Entry): string => String(entry[key]);
  const entries: Entry[] = [];
  let bound: string | undefined;
  for (const { answer } of answers) {
    const page = readPage(answer, member);
    if (page === undefined) return undefined;
    for (const entry of page.entries) entries.push(entry);
    if (page.next !== undefined && (bound === undefined || page.next < bound)) bound = page.next;
  }
  const known = bound;
  const sure = known === undefined ? entries : entries.filter((entry) => keyOf(entry) <= known);
  // In the order of code units, as each shard has it.
  sure.sort((one, other) => (keyOf(one) < keyOf(other) ? -1 : 1));
  const shown = sure.slice(0, limit);
  const last = shown.at(-1);
  const next = sure.length > limit && last !== undefined ? keyOf(last) : bound;
  return json(200, { [member]: shown, ...(next === undefined ? {} : { next }) });
}

type Entry = Readonly<Record<string, unknown>>;

interface Page {
  readonly entries: readonly Entry[];
  /** The shard has looked up to here, and may have more behind it. */
  readonly next: string | undefined;
}

function readPage(answer: ServerAnswer, member: string): Page | undefined {
  if (answer.status !== 200) return undefined;
  const page = JSON.parse(text.decode(wholeBodyOf(answer))) as Entry;
  const entries = page[member];
  if (!Array.isArray(entries)) return undefined;
  const next = page["next"];
  return {
    entries: entries as readonly Entry[],
    next: typeof next === "string" ? next : undefined,
  };
}

/** The shard that knows more than the others: a transaction is committed in one of them. */
export function firstKnown(answers: readonly ShardAnswer[]): ServerAnswer | undefined {
  const isGood = ({ answer }: ShardAnswer): boolean => answer.status === 200;
  // A shard that cannot be asked may be the one that knows.
  const isUnclear = ({ answer }: ShardAnswer): boolean => answer.status >= 500;
  const isRefused = ({ answer }: ShardAnswer): boolean => answer.status !== 404;
  const found =
    answers.find(isGood) ?? answers.find(isUnclear) ?? answers.find(isRefused) ?? answers[0];
  return found?.answer;
}

/** Every sample gets the label of its shard. Heads of families come once. */
export function mergeMetrics(answers: readonly ShardAnswer[], own: string): WholeAnswer {
  const families = new Map<string, string[]>();
  for (const { shard, answer } of answers) {
    let family: string[] = [];
    for (const line of text.decode(wholeBodyOf(answer)).split("\n")) {
      const head = /^# HELP (\S+)/.exec(line);
      if (head?.[1] !== undefined) {
        const known = families.get(head[1]);
        family = known ?? [line];
        if (known === undefined) families.set(head[1], family);
      } else if (line.startsWith("#")) {
        if (!family.includes(line)) family.push(line);
      } else if (line !== "") {
        family.push(labelled(line, shard));
      }
    }
  }
  const lines = [...families.values()].flat();
  const body = new TextEncoder().encode(`${lines.join("\n")}${lines.length > 0 ? "\n" : ""}${own}`);
  const headers = { [HEADER.contentType]: METRICS_TYPE, [HEADER.cacheControl]: "no-store" };
  return { status: 200, headers, body };
}

/** The name, the labels, and the value with what may follow it. */
const SAMPLE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([-+0-9.eEINafn]+(?: -?\d+)?)$/;

/** What has another form than a sample goes on as it is. */
function labelled(line: string, shard: ShardId): string {
  const found = SAMPLE.exec(line);
  if (found === null) return line;
  const [, name = "", labels = "", value = ""] = found;
  return `${name}{shard="${shard}"${labels === "" ? "" : `,${labels}`}} ${value}`;
}
