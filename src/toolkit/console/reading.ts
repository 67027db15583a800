/**
 * What the console reads of a ledger. One request reads one page at most, however much is kept, and lets the program go on between
 * two reads.
 */

import { encodeBase64 } from "../../base/base64.ts";
import { waitingClock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import { pause } from "../../base/pause.ts";
import type { Entry, EntryPage, Ledger, PlacedEntry } from "../ledgers/ledger.ts";
import type { OutboxEvent } from "../outbox/log.ts";
import { parseState, RELAY_SCOPE } from "../outbox/relay-state.ts";
import { decodeSaga, placeOfSaga, refOfPlace, SAGA_KIND } from "../saga/record.ts";
import { sagaStateOf, sagaViewOf } from "../saga/view.ts";
import * as limits from "./limits.ts";
import type { ConsoleQuery } from "./query.ts";
import type {
  EntryRow,
  EntryView,
  HeldRow,
  KeptValue,
  KindCount,
  RelayView,
  Rows,
  SagaDetail,
  SagaRow,
} from "./views.ts";

/** What the primitives of the toolkit keep. */
export const KINDS = [
  "once",
  "http",
  "inbox",
  "saga",
  "relay",
  "lease",
  "pipeline",
  "version",
  "newest",
] as const;

const { PAGE_ENTRIES_MAX: PAGE, COUNTED_MAX } = limits;
const strictText = new TextDecoder("utf-8", { fatal: true });

/** Lets the program do something else: some databases answer without leaving the turn. */
function breathe(): Promise<void> {
  return pause(waitingClock, 0);
}

export async function countKinds<Tx>({ entries }: Ledger<Tx>): Promise<readonly KindCount[]> {
  const counts: KindCount[] = [];
  const bare = { max: COUNTED_MAX, isBare: true } as const;
  for (const kind of KINDS) {
    await breathe();
    const running = (await entries.page({ kind, state: "running", ...bare })).entries.length;
    const failed = (await entries.page({ kind, state: "failed", ...bare })).entries.length;
    const overdue = running === 0 ? 0 : (await overdueOf(entries, kind, COUNTED_MAX)).length;
    counts.push({ kind, running, overdue, failed });
  }
  return counts;
}

/** Running, and the lease is over: no process works on it. The one that has waited longest is the first. */
function overdueOf<Tx>(
  entries: Ledger<Tx>["entries"],
  kind: string,
  max: number,
): Promise<readonly PlacedEntry[]> {
  return entries.scan({ kind, state: "running", isAbandoned: true, order: "due", max });
}

export async function listEntries<Tx>(
  { entries }: Ledger<Tx>,
  query: ConsoleQuery,
): Promise<Rows<EntryRow>> {
  const list = query.word("list", ["all", "running", "overdue", "failed", "released"]);
  const [kind, scope, from] = [query.need("kind"), query.find("scope"), query.find("from")];
  const bare = { kind, max: PAGE, isBare: true } as const;
  if (list === "overdue")
    return { rows: (await overdueOf(entries, kind, PAGE)).map((entry) => rowOf(entry)) };
  const page = await entries.page(
    list === "all" ? { ...bare, scope, from } : { ...bare, state: list, from },
  );
  return rowsOf(page, rowOf);
}

export async function showEntry<Tx>(
  { entries }: Ledger<Tx>,
  query: ConsoleQuery,
  isValueAsked: boolean,
): Promise<EntryView> {
  const place = { kind: query.need("kind"), scope: query.need("scope"), key: query.need("key") };
  const entry = await entries.find(place);
  if (entry === undefined)
    throw new HapaxError("not_found", "there is no such entry, or its retention is over");
  const { revision, fingerprint, data } = entry;
  return {
    ...rowOf({ ...entry, place }),
    revision,
    ...(fingerprint === undefined ? {} : { fingerprint }),
    valueBytes: data?.length ?? 0,
    ...(isValueAsked && data !== undefined ? { value: valueOf(data) } : {}),
  };
}

function rowOf({ place, state, attempts, token, ageMs, ...entry }: PlacedEntry): EntryRow {
  const { leaseLeftMs, keepLeftMs } = entry;
  return {
    ...place,
    state,
    attempts,
    token,
    ageMs,
    ...(leaseLeftMs === undefined ? {} : { leaseLeftMs }),
    ...(keepLeftMs === undefined ? {} : { keepLeftMs }),
  };
}

function rowsOf<T>({ entries, next }: EntryPage, row: (entry: PlacedEntry) => T): Rows<T> {
  return { rows: entries.map(row), ...(next === undefined ? {} : { next }) };
}

export function valueOf(bytes: Uint8Array): KeptValue {
  const shown = bytes.subarray(0, limits.VALUE_BYTES_MAX);
  try {
    // Values of sagas and of HTTP requests begin with a byte for their format.
    const text = strictText.decode(shown);
    // oxlint-disable-next-line no-control-regex -- What has these is no text for a person.
    if (!/[\0-\x08\x0e-\x1f]/.test(text)) return { bytes: bytes.length, text };
  } catch {
    // It is no text, or was cut within a character.
  }
  return { bytes: bytes.length, base64: encodeBase64(shown) };
}

export async function listSagaRows<Tx>(
  { entries }: Ledger<Tx>,
  query: ConsoleQuery,
): Promise<Rows<SagaRow>> {
  const list = query.word("list", ["open", "stuck", "all"]);
  const [saga, scope, from] = [query.find("saga"), query.find("scope"), query.find("from")];
  const some = { kind: SAGA_KIND, max: PAGE, from };
  // The scope of an entry names both: one alone cannot be searched for.
  const within = saga === undefined || scope === undefined ? undefined : `${saga}/${scope}`;
  if (list === "all") return rowsOf(await entries.page({ ...some, scope: within }), sagaRowOf);
  const state = list === "stuck" ? "failed" : "running";
  return rowsOf(await entries.page({ ...some, state }), sagaRowOf);
}

function sagaRowOf(entry: PlacedEntry): SagaRow {
  const ref = refOfPlace(entry.place);
  const { ageMs } = entry;
  try {
    const progress = decodeSaga(entry.data);
    const at = progress.stuck?.step ?? progress.waiting?.step ?? lastStep(progress.steps);
    const state = sagaStateOf(progress);
    return { ...ref, state, ageMs, ...(at === undefined ? {} : { at }) };
  } catch (error) {
    // One that cannot be read does not hide the others.
    return { ...ref, state: "unreadable", ageMs, problem: String(error) };
  }
}

function lastStep(steps: Readonly<Record<string, unknown>>): string | undefined {
  return Object.keys(steps).at(-1);
}

export async function showSaga<Tx>(
  { entries }: Ledger<Tx>,
  query: ConsoleQuery,
  areValuesAsked: boolean,
): Promise<SagaDetail> {
  const [saga, scope, key] = [query.need("saga"), query.need("scope"), query.need("key")];
  const place = placeOfSaga(saga, { scope, key });
  const entry = await entries.find(place);
  if (entry === undefined)
    throw new HapaxError("saga_not_found", `saga=${saga} scope=${scope} key=${key}`);
  return sagaDetailOf({ ...entry, place }, areValuesAsked);
}

function sagaDetailOf(entry: Entry & PlacedEntry, areValuesAsked: boolean): SagaDetail {
  const row = sagaRowOf(entry);
  if (row.problem !== undefined) return { ...row, version: 0, steps: [], history: [] };
  const progress = decodeSaga(entry.data);
  const view = sagaViewOf(entry.place, entry);
  const resultOf = (name: string): string | undefined =>
    Object.hasOwn(progress.steps, name) ? progress.steps[name]?.result : undefined;
  const steps = view.steps.map((step) =>
    areValuesAsked ? { ...step, ...shown("result", resultOf(step.name)) } : step,
  );
  // As JSON what is undefined is not there.
  return JSON.parse(
    JSON.stringify({
      ...row,
      ...view,
      steps,
      ...(areValuesAsked ? shown("input", progress.input) : {}),
    }),
  ) as SagaDetail;
}

function shown(name: string, json: string | undefined): Readonly<Record<string, string>> {
  return json === undefined ? {} : { [name]: json.slice(0, limits.VALUE_BYTES_MAX) };
}

/** The relays that have ever run here. */
export async function listRelays<Tx>(ledger: Ledger<Tx>): Promise<readonly RelayView[]> {
  if (ledger.supports.outbox.length === 0) return [];
  const { entries, outbox } = ledger;
  const scope = RELAY_SCOPE;
  const found = await entries.page({ kind: "relay", scope, max: limits.RELAYS_MAX });
  const relays: RelayView[] = [];
  for (const { place, data, state, leaseLeftMs } of found.entries) {
    await breathe();
    const relay = place.key;
    const { oldestMs, slotBytes } = await outbox.lag(parseState(data).position);
    const count = (held: "waiting" | "dead"): Promise<number> =>
      outbox.held.count({ relay, state: held, max: limits.HELD_COUNTED_MAX });
    relays.push({
      relay,
      isHeld: state === "running" && (leaseLeftMs ?? 0) > 0,
      lagMs: oldestMs,
      ...(slotBytes === undefined ? {} : { slotBytes }),
      waiting: await count("waiting"),
      dead: await count("dead"),
    });
  }
  return relays;
}

/** The events that a relay holds: those that were held first. A key or a fingerprint narrows the list. */
export async function listHeld<Tx>(
  { outbox }: Ledger<Tx>,
  query: ConsoleQuery,
  arePayloadsAsked: boolean,
): Promise<Rows<HeldRow> & { readonly hasMore: boolean }> {
  const relay = query.need("relay");
  const [key, fingerprint] = [query.find("key"), query.find("fingerprint")];
  const found = await outbox.held.list({
    relay,
    state: query.word("state", ["dead", "waiting"]),
    ...(key === undefined ? {} : { key }),
    ...(fingerprint === undefined ? {} : { fingerprint }),
    max: PAGE + 1,
  });
  const rows = found.slice(0, PAGE).map(({ event, attempts, dueInMs, reason }) => ({
    ...eventOf(event),
    attempts,
    dueInMs,
    ...(reason === undefined ? {} : reason),
    ...(arePayloadsAsked ? { payload: valueOf(event.payload) } : {}),
  }));
  return { rows, hasMore: found.length > PAGE };
}

function eventOf({
  id,
  topic,
  key,
  addedAtMs,
}: OutboxEvent): Omit<HeldRow, "attempts" | "dueInMs"> {
  return { id, topic, ...(key === undefined ? {} : { key }), addedAtMs };
}
