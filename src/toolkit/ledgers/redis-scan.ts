/**
 * Scans and sweeps of a ledger in Redis. A scan looks ids up in a sorted set, and then reads their entries; what has changed in
 * between is left out. Everything goes in pieces that do not hold the server.
 */

import { type RedisSession, replyList, replyText } from "../databases/redis.ts";
import { placeInPages } from "./entry-pages.ts";
import type { Entry, EntryFilter, EntryPage, PageFilter, PlacedEntry } from "./ledger.ts";
import { readEntries, safeInteger } from "./redis-entry.ts";
import { placeOfId, type ShardKeys, STATES } from "./redis-keys.ts";
import { PAGE, SWEEP } from "./redis-scripts.ts";

/** Ids of one page, and entries that one script deletes. */
const PAGE_MAX = 500;
/** Abandoned entries among which a scan looks for the oldest: those whose lease ended first. */
const ABANDONED_MAX = 10_000;

/** An id with the number that it is ordered by. */
interface Ranked {
  readonly id: string;
  readonly rank: number;
}

interface Page {
  readonly now: number;
  readonly ids: readonly string[];
  readonly scores: readonly number[];
  /** In the other set; undefined if it is not there. */
  readonly others: readonly (number | undefined)[];
}

async function page(
  session: RedisSession,
  keys: readonly string[],
  from: string,
  to: "now" | "+inf",
  max: number,
): Promise<Page> {
  const reply = await session.run(PAGE, keys, [from, to, String(max)]);
  const [now, ids, scores, others] = replyList(reply);
  return {
    now: safeInteger(now),
    ids: replyList(ids).map(replyText),
    scores: replyList(scores).map(safeInteger),
    others: replyList(others).map((score) =>
      score === null || score === undefined ? undefined : safeInteger(score),
    ),
  };
}

/** Walks a sorted set from its least score on, and hands over page after page until `take` has enough. */
async function walk(
  session: RedisSession,
  keys: readonly string[],
  to: "now" | "+inf",
  size: number,
  take: (id: string, score: number, other: number | undefined) => boolean,
): Promise<void> {
  let from = "-inf";
  // Several may have the same score: a page begins with the last score of the page before.
  let seen = new Set<string>();
  for (let max = size; ;) {
    const { ids, scores, others } = await page(session, keys, from, to, max);
    const last = scores.at(-1);
    if (last === undefined) return;
    for (const [at, id] of ids.entries()) {
      if (seen.has(id)) continue;
      if (!take(id, scores[at] ?? 0, others[at])) return;
    }
    if (ids.length < max) return;
    const tied = ids.filter((_, at) => scores[at] === last);
    // A page of equals leads nowhere: the next one is larger.
    max = tied.length === ids.length ? max * 2 : size;
    from = String(last);
    seen = new Set(tied);
  }
}

/** Returns the entries that the filter asks for, in its order. */
export async function scanShards(
  session: RedisSession,
  all: readonly ShardKeys[],
  filter: EntryFilter,
): Promise<readonly PlacedEntry[]> {
  const ranked = await Promise.all(
    all.map(async (keys) =>
      (await ranksOf(session, keys, filter)).map((one) => ({ ...one, keys })),
    ),
  );
  const chosen = ranked
    .flat()
    .toSorted((one, other) => one.rank - other.rank)
    .slice(0, filter.max);
  const found = new Map<string, PlacedEntry>();
  await Promise.all(
    all.map(async (keys) => {
      const ids = chosen.filter((one) => one.keys === keys).map(({ id }) => id);
      const entries = await readEntries(session, keys, ids);
      for (const [at, entry] of entries.entries()) {
        const id = ids[at] ?? "";
        if (entry !== undefined && isSought(entry, filter))
          found.set(id, { ...entry, place: placeOfId(id) });
      }
    }),
  );
  return chosen.flatMap(({ id }) => found.get(id) ?? []);
}

/** It may have changed since its id was looked up. */
function isSought({ state, leaseLeftMs }: Entry, filter: EntryFilter): boolean {
  if (filter.state !== undefined && state !== filter.state) return false;
  if (filter.order === "due" && (state !== "running" || leaseLeftMs === undefined)) return false;
  return filter.isAbandoned !== true || (leaseLeftMs ?? 1) <= 0;
}

/** The ids that a scan of one shard may return, with what they are ordered by. */
async function ranksOf(
  session: RedisSession,
  keys: ShardKeys,
  filter: EntryFilter,
): Promise<readonly Ranked[]> {
  const { kind, scope, state, isAbandoned = false, order = "made", max } = filter;
  const ranked: Ranked[] = [];
  const size = scope === undefined ? Math.min(max, PAGE_MAX) : PAGE_MAX;
  /** Takes ids of the scope until there are so many. */
  const upTo = (most: number) => {
    let left = most;
    return (id: string, rank: number | undefined): boolean => {
      if (rank === undefined || (scope !== undefined && placeOfId(id).scope !== scope)) return true;
      ranked.push({ id, rank });
      left -= 1;
      return left > 0;
    };
  };
  const end = isAbandoned ? "now" : "+inf";
  if (order === "due") {
    if ((state ?? "running") === "running")
      await walk(session, [keys.due(kind)], end, size, upTo(max));
  } else if (isAbandoned) {
    const take = upTo(ABANDONED_MAX);
    const sets = [keys.due(kind), keys.state("running", kind)];
    await walk(session, sets, end, PAGE_MAX, (id, _due, made) => take(id, made));
  } else {
    const states = state === undefined ? STATES : [state];
    await Promise.all(
      states.map((one) => walk(session, [keys.state(one, kind)], end, size, upTo(max))),
    );
  }
  return ranked;
}

/**
 * LG13: one sorted set after the other, each by the first tokens of its entries, which are all different in a shard. `from` is the
 * number of a set, and the last token of the page before.
 */
export async function pageShards(
  session: RedisSession,
  all: readonly ShardKeys[],
  { kind, scope, state, from, max, isBare }: PageFilter,
): Promise<EntryPage> {
  const states = state === undefined ? STATES : [state];
  const sets = all.flatMap((keys) => states.map((one) => ({ keys, one })));
  const [first, after] = from === undefined ? ["0", ""] : placeInPages(from);
  let least = after === "" ? "-inf" : `(${safeInteger(after)}`;
  for (let at = safeInteger(first); ; at += 1) {
    const set = sets[at];
    if (set === undefined) return { entries: [], next: undefined };
    const { keys, one } = set;
    const { ids, scores } = await page(session, [keys.state(one, kind)], least, "+inf", max);
    least = "-inf";
    if (ids.length === 0) continue;
    const sought = ids.filter((id) => scope === undefined || placeOfId(id).scope === scope);
    const read = await readEntries(session, keys, sought);
    const entries = read.flatMap((entry, index) =>
      // It may have changed since its id was looked up.
      entry === undefined || (state !== undefined && entry.state !== state)
        ? []
        : {
            ...entry,
            data: isBare === true ? undefined : entry.data,
            place: placeOfId(sought[index] ?? ""),
          },
    );
    const isWhole = ids.length < max;
    if (isWhole && at === sets.length - 1) return { entries, next: undefined };
    return {
      entries,
      next: JSON.stringify(isWhole ? [`${at + 1}`, ""] : [`${at}`, `${scores.at(-1)}`]),
    };
  }
}

/** LG10: the first lease of each kind. */
export async function nextDueOf(
  session: RedisSession,
  all: readonly ShardKeys[],
  kinds: readonly string[],
): Promise<number | undefined> {
  const pages = await Promise.all(
    all.flatMap((keys) =>
      [...new Set(kinds)].map((kind) => page(session, [keys.due(kind)], "-inf", "+inf", 1)),
    ),
  );
  const leftMs = pages.flatMap(({ now, scores }) =>
    scores.map((until) => Math.ceil((until - now) / 1000)),
  );
  return leftMs.length === 0 ? undefined : Math.min(...leftMs);
}

/** Deletes at most `max` entries that are past their retention, and returns how many. */
export async function sweepShards(
  session: RedisSession,
  all: readonly ShardKeys[],
  max: number,
): Promise<number> {
  let swept = 0;
  for (const keys of all) {
    if (swept >= max) break;
    swept += await sweepShard(session, keys, max - swept);
  }
  return swept;
}

/** Deletes at most `max` entries of one shard. Ends early if others sweep the same ones. */
async function sweepShard(session: RedisSession, keys: ShardKeys, max: number): Promise<number> {
  let swept = 0;
  while (swept < max) {
    const some = Math.min(max - swept, PAGE_MAX);
    const { ids } = await page(session, [keys.expiry], "-inf", "now", some);
    let deleted = 0;
    for (const [kind, ofKind] of byKind(ids)) {
      const sets = [keys.expiry, keys.due(kind), ...keys.states(kind)];
      const entries = ofKind.map((id) => keys.entry(id));
      deleted += Number(await session.run(SWEEP, [...sets, ...entries], ofKind));
    }
    swept += deleted;
    if (deleted === 0) break;
  }
  return swept;
}

function byKind(ids: readonly string[]): ReadonlyMap<string, string[]> {
  const kinds = new Map<string, string[]>();
  for (const id of ids) {
    const { kind } = placeOfId(id);
    const some = kinds.get(kind);
    if (some === undefined) kinds.set(kind, [id]);
    else some.push(id);
  }
  return kinds;
}
