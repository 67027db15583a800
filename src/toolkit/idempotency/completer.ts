/**
 * Finishes requests that no process works on any more and whose clients did not come back.
 *
 *   - a request whose process died, or whose handler failed after a finished phase, is run to its end from its last phase;
 *   - several completers, and clients that come back, never work on one request at once: each claims it first;
 *   - a request that fails is tried again after growing pauses, and not more often than `attemptsMax`;
 *   - requests that cannot be finished do not hide others.
 */

import { doubledMs, spreadMs } from "../../base/backoff.ts";
import type { EntryFilter, Ledger, Place, PlacedEntry } from "../ledgers/ledger.ts";
import { Check } from "../once/check.ts";
import type { Acquired, Claim, ClaimTerms } from "../once/claiming.ts";
import type { HttpAnswer } from "./answer.ts";
import type { IdempotencyContext } from "./context.ts";
import {
  COMPLETER_ATTEMPTS_DEFAULT,
  COMPLETER_BATCH_DEFAULT,
  COMPLETER_EVERY_MS_DEFAULT,
  COMPLETER_PASSED_MAX,
  COMPLETER_PAUSE_MS_MAX,
} from "./limits.ts";
import { decodeProgress, type StoredRequest } from "./record.ts";
import type { Run } from "./run.ts";
import type { ResolvedOptions } from "./options.ts";

type Handler<Tx> = (
  request: Request,
  context: IdempotencyContext<Tx>,
) => Response | Promise<Response>;

/** Options of a completer. Only `handlerFor` is needed. */
export interface CompleterOptions<Tx> {
  /** Returns the handler of the request; undefined if this process does not have it. */
  readonly handlerFor: (
    request: Request,
    place: { readonly scope: string; readonly key: string },
  ) => Handler<Tx> | undefined;
  /** Time between two searches, in milliseconds, with a jitter of a tenth. Default 10,000. */
  readonly everyMs?: number;
  /** The most requests that one search finishes. Default 20. */
  readonly batch?: number;
  /** How often a request may be begun, by clients and completers together. Default 10. */
  readonly attemptsMax?: number;
  /** Called with every failure. Default: `onError` of the engine. */
  readonly onError?: (error: unknown) => void;
}

/** Finishes abandoned requests. */
export interface Completer {
  /** Searches from time to time, until `stop`. Does not keep a process alive. */
  start(): void;
  /** Stops searching. Resolves when the running search has ended. */
  stop(): Promise<void>;
  /** Searches once. Returns how many requests it has finished. */
  run(): Promise<number>;
}

interface CompleterParts<Tx> {
  readonly ledger: Ledger<Tx>;
  readonly options: Omit<ResolvedOptions<never>, "scope" | "fingerprint">;
  readonly claim: (place: Place, terms: ClaimTerms) => Promise<Acquired<Tx>>;
  readonly start: (claim: Claim<Tx>, fingerprint: string | undefined) => Promise<Run<Tx>>;
  readonly perform: (run: Run<Tx>, request: Request, handler: Handler<Tx>) => Promise<HttpAnswer>;
}

interface Found<Tx> {
  readonly entry: PlacedEntry;
  readonly request: Request;
  readonly handler: Handler<Tx>;
}

export function createCompleter<Tx>(
  parts: CompleterParts<Tx>,
  { handlerFor, ...given }: CompleterOptions<Tx>,
): Completer {
  const { options } = parts;
  const check = new Check();
  const everyMs = check.whole("everyMs", given.everyMs, COMPLETER_EVERY_MS_DEFAULT, 1, 86_400_000);
  const batch = check.whole("batch", given.batch, COMPLETER_BATCH_DEFAULT, 1, 1000);
  const attemptsMax = check.whole(
    "attemptsMax",
    given.attemptsMax,
    COMPLETER_ATTEMPTS_DEFAULT,
    1,
    Number.MAX_SAFE_INTEGER,
  );
  if (!options.completes) check.problem("completes of the engine is not true: nothing is stored");
  check.end();
  const onError = given.onError ?? options.onError;
  const search: Search<Tx> = { parts, handlerFor, everyMs, batch, attemptsMax, onError };
  const { clock, random } = options.tools;
  let underWay: Promise<number> | undefined;
  let isStarted = false;
  let cancel: () => void = () => undefined;
  const run = (): Promise<number> => {
    underWay ??= look(search).finally(() => {
      underWay = undefined;
    });
    return underWay;
  };
  const later = (): void => {
    if (!isStarted) return;
    cancel = clock.after(spreadMs(everyMs, 0.05, random.unit()), () => {
      void run().catch(onError).finally(later);
    });
  };
  return {
    run,
    start() {
      if (isStarted) return;
      isStarted = true;
      later();
    },
    async stop() {
      isStarted = false;
      cancel();
      // The caller that began the search gets its failure.
      await underWay?.catch(() => undefined);
    },
  };
}

interface Search<Tx> {
  readonly parts: CompleterParts<Tx>;
  readonly handlerFor: CompleterOptions<Tx>["handlerFor"];
  readonly everyMs: number;
  readonly batch: number;
  readonly attemptsMax: number;
  readonly onError: (error: unknown) => void;
}

async function look<Tx>(search: Search<Tx>): Promise<number> {
  const { parts, batch } = search;
  const running = { kind: "http", state: "running", isAbandoned: true } as const;
  const lost = await find(search, { ...running, order: "due" });
  const failed = await find(search, { kind: "http", state: "released" });
  let finished = 0;
  for (const found of [...lost, ...failed].slice(0, batch)) {
    if (await complete(search, parts, found)) finished += 1;
  }
  return finished;
}

/** Finds requests that can be finished, and skips all others. */
async function find<Tx>(
  search: Search<Tx>,
  filter: Omit<EntryFilter, "max">,
): Promise<readonly Found<Tx>[]> {
  for (let max = search.batch; ; max *= 4) {
    const entries = await search.parts.ledger.entries.scan({ ...filter, max });
    const found = entries.flatMap((entry) => foundOf(search, entry) ?? []);
    if (found.length >= search.batch || entries.length < max || max > COMPLETER_PASSED_MAX)
      return found;
  }
}

function foundOf<Tx>(search: Search<Tx>, entry: PlacedEntry): Found<Tx> | undefined {
  try {
    const { request: stored, phases } = decodeProgress(entry.data);
    if (stored === undefined || entry.attempts >= search.attemptsMax) return undefined;
    if (entry.keepLeftMs !== undefined && entry.keepLeftMs <= 0) return undefined;
    // A transaction that failed has left nothing, and its client got the failure.
    if (entry.state === "released" && (phases.size === 0 || !isDue(search, entry)))
      return undefined;
    const request = requestOf(stored);
    const { scope, key } = entry.place;
    const handler = search.handlerFor(request, { scope, key });
    return handler === undefined ? undefined : { entry, request, handler };
  } catch (error) {
    search.onError(error);
    return undefined;
  }
}

/** Returns whether the pause is over. The retention of an entry begins anew when it is released. */
function isDue<Tx>({ parts, everyMs }: Search<Tx>, entry: PlacedEntry): boolean {
  const sinceMs = parts.options.retainMs - (entry.keepLeftMs ?? 0);
  return (
    sinceMs >= doubledMs(entry.attempts, { pauseMs: everyMs, pauseMsMax: COMPLETER_PAUSE_MS_MAX })
  );
}

/** Finishes a request. Returns whether this completer finished it. */
async function complete<Tx>(
  { attemptsMax, onError }: Search<Tx>,
  { options, claim, start, perform }: CompleterParts<Tx>,
  { entry, request, handler }: Found<Tx>,
): Promise<boolean> {
  const { leaseMs, workMsMax, retainMs, mode } = options;
  const effect = mode === "transaction" ? "transaction" : "repeatable";
  const { fingerprint } = entry;
  try {
    const terms = { fingerprint, effect, attemptsMax, leaseMs, workMsMax, retainMs } as const;
    const acquired = await claim(entry.place, terms);
    if (acquired.kind !== "claimed") return false;
    const answer = await perform(await start(acquired.claim, fingerprint), request, handler);
    await answer.rest?.cancel();
    return true;
  } catch (error) {
    // The next search tries it again.
    onError(error);
    return false;
  }
}

function requestOf({ method, url, headers, body }: StoredRequest): Request {
  const init = { method, headers: headers.map(([name, value]): [string, string] => [name, value]) };
  if (body.length === 0) return new Request(url, init);
  // Cast: the type requires bytes that no other thread can change; ours are never shared.
  return new Request(url, { ...init, body: body as Uint8Array<ArrayBuffer> });
}
