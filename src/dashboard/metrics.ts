/** The figures of the server: read again and again while the page is seen, and kept for some minutes as rates. */

import { lookAt, type MetricsLook, quantileMs, rateOfMetric } from "../base/metrics-reading.ts";
import { Refusal } from "./refusal.ts";
import { call, getJson } from "./server.ts";
import { Shared } from "./store.ts";

export interface Health {
  readonly writes: "open" | "stopped" | "full" | "draining";
  readonly durability: string;
  readonly detail?: string;
  /** Of a cluster: the node that answers. */
  readonly node?: string;
  readonly shards?: { readonly owned: number; readonly orphans: number; readonly all: number };
}

/** What a node says about itself and the cluster. */
export type Part = Required<Pick<Health, "node" | "shards">>;

/** What is drawn: one value for each second that was looked at. */
export interface History {
  readonly seconds: readonly number[];
  readonly appends: readonly number[];
  readonly duplicates: readonly number[];
  readonly bytes: readonly number[];
  readonly readers: readonly number[];
  readonly medianMs: readonly (number | null)[];
  readonly slowMs: readonly (number | null)[];
}

const NONE: History = {
  seconds: [],
  appends: [],
  duplicates: [],
  bytes: [],
  readers: [],
  medianMs: [],
  slowMs: [],
};

const COMMITS = "hapax_commit_seconds";
const POINTS_MAX = 300;
const EVERY_MS = 1000;
/** A server that needs long for its figures is asked less often. */
const SHARE_MAX = 4;

export const look = new Shared<MetricsLook | undefined>(undefined);
export const history = new Shared<History>(NONE);
export const health = new Shared<Health | Refusal | undefined>(undefined);
/** Undefined: the server is alone, or has not answered yet. */
export const part = new Shared<Part | undefined>(undefined);
/** Why there are no figures. */
export const lookRefusal = new Shared<Refusal | undefined>(undefined);

/** The history with one more point. */
function withLook(old: History, before: MetricsLook, now: MetricsLook): History {
  const rate = (name: string): number => rateOfMetric(before, now, name);
  const add = <T>(list: readonly T[], value: T): readonly T[] =>
    [...list, value].slice(-POINTS_MAX);
  return {
    seconds: add(old.seconds, now.atMs / 1000),
    appends: add(old.appends, rate('hapax_appends_total{outcome="accepted"}')),
    duplicates: add(old.duplicates, rate("hapax_duplicates_total")),
    bytes: add(old.bytes, rate("hapax_appended_bytes_total")),
    readers: add(old.readers, now.values.get("hapax_live_readers") ?? 0),
    medianMs: add(old.medianMs, quantileMs(before, now, COMMITS, 0.5)),
    slowMs: add(old.slowMs, quantileMs(before, now, COMMITS, 0.99)),
  };
}

async function lookAgain(): Promise<void> {
  try {
    const state = await getJson<Health>("/_hapax/health", {}, { isQuiet: true });
    health.set(state);
    part.set(partOf(state));
  } catch (error) {
    // A server that takes no writes says why in the same document.
    health.set(error instanceof Refusal ? error : undefined);
    if (error instanceof Refusal && error.status !== 0) part.set(partOf(error.facts));
  }
  try {
    const text = await (await call("GET", "/_hapax/metrics")).text();
    const before = look.value;
    const now = lookAt(Date.now(), text);
    if (before !== undefined) history.set(withLook(history.value, before, now));
    look.set(now);
    lookRefusal.set(undefined);
  } catch (error) {
    if (error instanceof Refusal) lookRefusal.set(error);
  }
}

function partOf({ node, shards }: Partial<Part>): Part | undefined {
  return node === undefined || shards === undefined ? undefined : { node, shards };
}

/** Begins to look. A page that is not seen does not ask. */
export function startLooking(): void {
  const round = async (): Promise<void> => {
    const startMs = Date.now();
    if (!document.hidden) await lookAgain();
    const tookMs = Date.now() - startMs;
    setTimeout(() => void round(), Math.max(EVERY_MS, tookMs * SHARE_MAX));
  };
  void round();
}

/** Forgets what another identity has seen. */
export function forgetLooks(): void {
  look.set(undefined);
  history.set(NONE);
  lookRefusal.set(undefined);
}
