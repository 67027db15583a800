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
 * The pages are taken one after the other, and no more is kept than can be shown.
 */
export class ListMerge {
  readonly #listed: Listed;
  readonly #limit: number;
  #entries: Entry[] = [];
  #bound: string | undefined;

  constructor(query: string, listed: Listed) {
    this.#listed = listed;
    this.#limit = parseLimit(queryText(parseQuery(query), "limit"));
  }

  /** Takes the page of a shard. False: it is none. */
  add(answer: ServerAnswer): boolean {
    const page = readPage(answer, this.#listed.member);
    if (page === undefined) return false;
    const { next } = page;
    if (next !== undefined && (this.#bound === undefined || next < this.#bound)) this.#bound = next;
    const bound = this.#bound;
    const all = [...this.#entries, ...page.entries];
    const sure = bound === undefined ? all : all.filter((entry) => this.#keyOf(entry) <= bound);
    // In the order of code units, as each shard has it.
    sure.sort((one, other) => (this.#keyOf(one) < this.#keyOf(other) ? -1 : 1));
    this.#entries = sure.slice(0, this.#limit + 1);
    return true;
  }

  answer(): WholeAnswer {
    const shown = this.#entries.slice(0, this.#limit);
    const last = shown.at(-1);
    const hasMore = this.#entries.length > this.#limit && last !== undefined;
    const next = hasMore ? this.#keyOf(last) : this.#bound;
    return json(200, { [this.#listed.member]: shown, ...(next === undefined ? {} : { next }) });
  }

  #keyOf(entry: Entry): string {
    return String(entry[this.#listed.key]);
  }
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
