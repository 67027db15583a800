/**
 * Sagas over a ledger: starts them, runs them to their end in any process that has their definitions, and lets
 * operators act on them.
 *
 *   - SA7: the entry of an identity is created once. A second start gets the existing saga;
 *   - SA9: each saga runs by itself. An error of one, or an entry that cannot be read, affects no other;
 *   - a search for sagas that are due costs one statement, however many sagas sleep.
 */

import { waitingClock } from "../../base/clock.ts";
import { tellSafely } from "../../base/error-words.ts";
import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { hexOf } from "../../base/hex.ts";
import { webDigest } from "../../base/digest.ts";
import { rest } from "../../base/pause.ts";
import { Turns } from "../../base/turns.ts";
import type { Entry, Ledger, Place, PlacedEntry } from "../ledgers/ledger.ts";
import { Check } from "../once/check.ts";
import { resolveTools } from "../once/tools.ts";
import * as onceLimits from "../once/limits.ts";
import { growingPauses } from "../once/pauses.ts";
import { canonicalText } from "../rules/canonical-json.ts";
import type { ScopedKey } from "../rules/scoped-key.ts";
import type { JoinedSagas, Sagas, SagasOptions, SagaStartOptions } from "./contract.ts";
import type { Saga, SagaDefinition, SagaWork } from "./definition.ts";
import {
  beginningOf,
  definitionFor,
  drive,
  firstWrite,
  makeSaga,
  newestFirst,
  postpone,
  requireDefinable,
  type SagaDefinitions,
  takeSaga,
} from "./drive.ts";
import type { HeldSaga, SagaShop } from "./held.ts";
import * as limits from "./limits.ts";
import {
  actOnSaga,
  findSaga,
  listSagas,
  measureSagas,
  type SagaActor,
  type SagaFilter,
  signalSaga,
} from "./operating.ts";
import { placeOfSaga, SAGA_KIND, type SagaRef } from "./record.ts";
import { jsonOf } from "./values.ts";
import { type SagaStatus, type SagaView, statusOf } from "./view.ts";

/**
 * Creates the sagas of a ledger. Pass every definition whose sagas this process should run, old versions too. Throws
 * `invalid_options`, and `unsupported` for `tx` steps on a ledger without transactions.
 *
 * ```ts
 * import { createSagas, defineSaga } from "hapax/saga";
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const greet = defineSaga<string>("greet").call("say", { run: ({ input }) => `hello ${input}` });
 * const sagas = createSagas(memoryLedger(), [greet], { onError: console.error });
 * const stopping = new AbortController();
 * const running = sagas.run(stopping.signal); // On every server: goes on with what others have left behind.
 * const said = await sagas.start(greet, { scope: "shop 1", key: "ann" }, "Ann", { waitMs: 5_000 });
 * console.assert(said.state === "completed" && said.results.say === "hello Ann");
 * stopping.abort();
 * await running;
 * ```
 */
export function createSagas<Tx>(
  ledger: Ledger<Tx>,
  definitions: readonly { readonly definition: SagaDefinition<Tx> }[],
  options: SagasOptions = {},
): Sagas<Tx> {
  if (ledger.isJoined)
    throw new HapaxError("unsupported", "pass the ledger itself; sagas.in(tx) joins a transaction");
  return new LedgerSagas(ledger, definitions, options);
}

/** The shortest pause between two searches. */
const PAUSE_MS_MIN = 10;

class LedgerSagas<Tx> implements Sagas<Tx> {
  readonly #shop: SagaShop<Tx>;
  readonly #definitions: SagaDefinitions<Tx>;
  readonly #everyMs: number;
  readonly #turns: Turns;
  readonly #batch: number;
  readonly #onError: (error: unknown) => void;
  readonly #stopping = new AbortController();
  readonly #driven = new Map<string, Promise<void>>();
  /** Sagas that are due, and that this process is about to claim. */
  readonly #taking = new Set<string>();

  constructor(
    ledger: Ledger<Tx>,
    definitions: readonly { readonly definition: SagaDefinition<Tx> }[],
    options: SagasOptions,
  ) {
    const check = new Check();
    const { LEASE_MS_DEFAULT, LEASE_MS_MIN, LEASE_MS_MAX } = onceLimits;
    const leaseMs = check.whole(
      "leaseMs",
      options.leaseMs,
      LEASE_MS_DEFAULT,
      LEASE_MS_MIN,
      LEASE_MS_MAX,
    );
    const { SAGA_RETAIN_MS_DEFAULT, SAGA_MS_MAX, SAGA_EVERY_MS_DEFAULT, SAGA_BATCH_DEFAULT } =
      limits;
    const keptMs = options.retainMs;
    const retainMs = check.whole("retainMs", keptMs, SAGA_RETAIN_MS_DEFAULT, 0, SAGA_MS_MAX);
    const { everyMs } = options;
    this.#everyMs = check.whole("everyMs", everyMs, SAGA_EVERY_MS_DEFAULT, 1, 86_400_000);
    const { concurrency } = options;
    this.#batch = check.whole("concurrency", concurrency, SAGA_BATCH_DEFAULT, 1, 1_000);
    this.#turns = new Turns(this.#batch);
    this.#onError = options.onError ?? ((): void => undefined);
    const clock = options.clock ?? waitingClock;
    this.#shop = { ledger, tools: resolveTools(options), clock, leaseMs, retainMs };
    this.#definitions = byName(check, definitions);
    check.end();
    for (const all of this.#definitions.values())
      for (const one of all) requireDefinable(this.#shop, one);
  }

  async start<Input, Results>(
    saga: Saga<Input, Results, Tx>,
    identity: ScopedKey,
    input: Input,
    { waitMs = 0, signal }: SagaStartOptions = {},
  ): Promise<SagaStatus<Results>> {
    const check = new Check();
    check.whole("waitMs", waitMs, waitMs, 0, onceLimits.WAIT_MS_MAX);
    check.end("invalid_request");
    const shop = this.#shop;
    const place = placeOfSaga(saga.name, identity);
    const definition = this.#definitionOf(saga.definition);
    const json = jsonOf(input, "input");
    const fingerprint = await fingerprintOf(json);
    const held = await makeSaga(
      shop,
      definition,
      place,
      beginningOf(definition, json),
      fingerprint,
    );
    if (held !== undefined) this.#driveAlone(held);
    const isDuplicate = held === undefined;
    if (isDuplicate) shop.tools.meter.add("duplicates_total", 1, { primitive: "saga" });
    return await this.#awaitEnd(place, fingerprint, isDuplicate, waitMs, signal);
  }

  signal(ref: SagaRef, name: string, payload?: unknown): Promise<SagaView> {
    return this.#signal(this.#shop, ref, name, payload);
  }

  in(tx: Tx): JoinedSagas<Tx> {
    const shop = { ...this.#shop, ledger: this.#shop.ledger.in(tx) };
    return {
      start: async (saga, identity, input) => {
        const place = placeOfSaga(saga.name, identity);
        const definition = this.#definitionOf(saga.definition);
        const json = jsonOf(input, "input");
        const fingerprint = await fingerprintOf(json);
        const waiting = { for: "runner" } as const;
        const progress = { ...beginningOf(definition, json), waiting };
        const write = firstWrite(progress, fingerprint);
        const written = await shop.ledger.entries.put(place, { kind: "absent" }, write);
        return await readStatus(shop, place, fingerprint, written === undefined);
      },
      signal: (ref, name, payload) => this.#signal(shop, ref, name, payload),
    };
  }

  async run(signal: AbortSignal): Promise<void> {
    const isOver = (): boolean => signal.aborted || this.#stopping.signal.aborted;
    // SA9: a search waits for no saga. One that hangs takes one place.
    const taken = new Set<Promise<unknown>>();
    while (!isOver()) {
      let nextMs: number | undefined;
      try {
        nextMs = await this.#search(taken, signal);
      } catch (error) {
        this.#tell(error);
      }
      const pauseMs = Math.min(this.#everyMs, Math.max(PAUSE_MS_MIN, nextMs ?? Infinity));
      if (!isOver()) await rest(this.#shop.clock, pauseMs, signal, this.#stopping.signal);
    }
    await Promise.all(taken);
  }

  runDue(): Promise<{ readonly ran: number; readonly nextDueMs: number | undefined }> {
    return this.#runDue(this.#stopping.signal);
  }

  list(filter: SagaFilter = {}): Promise<readonly SagaView[]> {
    return listSagas(this.#shop, filter, (error) => {
      this.#tell(error);
    });
  }

  find(ref: SagaRef): Promise<SagaView | undefined> {
    return findSaga(this.#shop, ref);
  }

  retry(ref: SagaRef, { by, note }: SagaActor): Promise<SagaView> {
    return actOnSaga(this.#shop, ref, { kind: "retry", by, note });
  }

  async skip(
    ref: SagaRef,
    step: string,
    { by, note, result }: SagaActor & { readonly result?: unknown },
  ): Promise<SagaView> {
    const json = jsonOf(result);
    return await actOnSaga(this.#shop, ref, { kind: "skip", step, result: json, by, note });
  }

  abort(ref: SagaRef, { by, note }: SagaActor): Promise<SagaView> {
    return actOnSaga(this.#shop, ref, { kind: "abort", by, note });
  }

  finish(ref: SagaRef, { by, note }: SagaActor): Promise<SagaView> {
    return actOnSaga(this.#shop, ref, { kind: "finish", by, note });
  }

  measure(): Promise<void> {
    return measureSagas(this.#shop);
  }

  async stop(): Promise<void> {
    this.#stopping.abort(new Error("the sagas were stopped"));
    await Promise.all(this.#driven.values());
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  #tell(error: unknown): void {
    tellSafely(this.#onError, error);
  }

  #definitionOf({ name, outline }: SagaDefinition<Tx>): SagaDefinition<Tx> {
    const found = definitionFor(this.#definitions, name, outline);
    if (found !== undefined) return found;
    throw new HapaxError("invalid_request", `pass the saga to createSagas as well; saga=${name}`);
  }

  async #signal(
    shop: SagaShop<Tx>,
    ref: SagaRef,
    name: string,
    payload: unknown,
  ): Promise<SagaView> {
    const waitIn = (one: SagaDefinition<Tx>): SagaWork<Tx> | undefined => {
      const work = one.works.get(name);
      return work?.plan.kind === "signal" ? work : undefined;
    };
    const refused = (why: string): HapaxError =>
      new HapaxError("invalid_request", `${why}; saga=${ref.saga} signal=${name}`);
    const newest = newestFirst(this.#definitions, ref.saga).flatMap((one) => waitIn(one) ?? []);
    if (newest.length === 0) throw refused("no definition here waits for it");
    return await signalSaga(shop, ref, name, ({ saga, digest }) => {
      // SA8: as the steps of the saga have it. If they are not here, as those that could take it over.
      const own = definitionFor(this.#definitions, saga, digest);
      const wait = own === undefined ? newest[0] : waitIn(own);
      if (wait === undefined) throw refused("the steps of the saga do not wait for it");
      return jsonOf(wait.parse === undefined ? payload : wait.parse(payload), "payload");
    });
  }

  async #runDue(
    stopping: AbortSignal,
  ): Promise<{ readonly ran: number; readonly nextDueMs: number | undefined }> {
    const { entries } = this.#shop.ledger;
    // SA9: one that stays due although it was taken up does not make the search go round.
    const seen = new Set<string>();
    let ran = 0;
    for (;;) {
      if (stopping.aborted || this.#stopping.signal.aborted) return { ran, nextDueMs: undefined };
      const max = this.#batch;
      const found = await this.#due(max);
      const readMs = this.#shop.tools.clock.steadyMs();
      const fresh = found.filter(({ place }) => !seen.has(idOf(place)));
      for (const { place } of fresh) seen.add(idOf(place));
      const results = await Promise.all(
        fresh.map((entry) => this.#turns.run(() => this.#take(entry, readMs, stopping))),
      );
      ran += results.filter((isRun) => isRun).length;
      if (found.length < max || fresh.length === 0) break;
    }
    return { ran, nextDueMs: await entries.nextDue([SAGA_KIND]) };
  }

  /** Begins to run the sagas that are due, as far as there is room. Returns when the next one is due. */
  async #search(taken: Set<Promise<unknown>>, stopping: AbortSignal): Promise<number | undefined> {
    const room = this.#batch - taken.size;
    if (room <= 0) return undefined;
    const found = await this.#due(room + this.#taking.size);
    const readMs = this.#shop.tools.clock.steadyMs();
    const fresh = found.filter(({ place }) => !this.#taking.has(idOf(place))).slice(0, room);
    for (const entry of fresh) {
      const work = this.#turns.run(() => this.#take(entry, readMs, stopping));
      taken.add(work);
      void work.finally(() => taken.delete(work));
    }
    return found.length >= room ? 0 : await this.#shop.ledger.entries.nextDue([SAGA_KIND]);
  }

  #due(max: number): Promise<readonly PlacedEntry[]> {
    const filter = { kind: SAGA_KIND, state: "running", isAbandoned: true, order: "due" } as const;
    return this.#shop.ledger.entries.scan({ ...filter, max });
  }

  /** Returns whether this process has run the saga. Never rejects. */
  async #take(entry: PlacedEntry, readMs: number, stopping: AbortSignal): Promise<boolean> {
    const id = idOf(entry.place);
    if (stopping.aborted || this.#driven.has(id) || this.#taking.has(id)) return false;
    this.#taking.add(id);
    try {
      const held = await takeSaga(this.#shop, this.#definitions, entry, readMs);
      if (held === undefined) return false;
      this.#taking.delete(id);
      await this.#drive(held, stopping);
      return true;
    } catch (error) {
      this.#tell(error);
      await this.#putAside(entry);
      return false;
    } finally {
      this.#taking.delete(id);
    }
  }

  /** Makes a saga that cannot be read due later. Otherwise it would be the first one in each search. */
  async #putAside(entry: PlacedEntry): Promise<void> {
    try {
      await postpone(this.#shop, entry, entry.data);
    } catch (error) {
      this.#tell(error);
    }
  }

  #driveAlone(held: HeldSaga<Tx>): void {
    const { signal } = this.#stopping;
    void this.#followed(held, () => this.#turns.run(() => drive(held, signal)));
  }

  async #drive(held: HeldSaga<Tx>, stopping: AbortSignal): Promise<void> {
    const either = AbortSignal.any([stopping, this.#stopping.signal]);
    await this.#followed(held, () => drive(held, either));
  }

  /** Runs a claimed saga. Never rejects: an error concerns this saga alone, and its lease ends by itself. */
  async #followed(held: HeldSaga<Tx>, work: () => Promise<void>): Promise<void> {
    const id = idOf(held.claim.place);
    const driving = work().catch((error: unknown) => {
      // Another process drives it now.
      if (!isHapaxError(error, "lease_lost")) this.#tell(error);
    });
    this.#driven.set(id, driving);
    try {
      await driving;
    } finally {
      if (this.#driven.get(id) === driving) this.#driven.delete(id);
    }
  }

  async #awaitEnd<Results>(
    place: Place,
    fingerprint: string,
    isDuplicate: boolean,
    waitMs: number,
    signal: AbortSignal | undefined,
  ): Promise<SagaStatus<Results>> {
    const { clock, tools } = this.#shop;
    const endMs = clock.steadyMs() + waitMs;
    const nextMs = growingPauses(tools.random);
    for (;;) {
      const readMs = clock.steadyMs();
      const entry = await findStarted(this.#shop, place, fingerprint);
      const status = statusOf<Results>(place, entry, isDuplicate);
      const leftMs = endMs - clock.steadyMs();
      if (leftMs <= 0 || signal?.aborted === true || isSettled(status)) return status;
      const pauseMs = Math.min(leftMs, nextMs());
      // As soon as this process has driven it as far as it goes.
      const over = new AbortController();
      // SA7: no process drives it. There need not be a runner for a caller who waits.
      if (entry.leaseLeftMs !== undefined && entry.leaseLeftMs <= 0)
        void this.#turns
          .run(() => this.#take({ ...entry, place }, readMs, this.#stopping.signal))
          .then((isDriven) => {
            if (isDriven) over.abort();
          });
      void this.#driven.get(idOf(place))?.then(() => {
        over.abort();
      });
      const isDriven = this.#driven.has(idOf(place));
      await rest(clock, Math.max(1, isDriven ? leftMs : pauseMs), signal, over.signal);
    }
  }
}

/** Whether nothing more happens to the saga by itself. */
function isSettled({ state }: SagaView): boolean {
  return state === "completed" || state === "undone" || state === "finished" || state === "stuck";
}

async function readStatus<Tx, Results>(
  shop: SagaShop<Tx>,
  place: Place,
  fingerprint: string,
  isDuplicate: boolean,
): Promise<SagaStatus<Results>> {
  return statusOf(place, await findStarted(shop, place, fingerprint), isDuplicate);
}

/** Returns the entry of a saga that was started with this input. */
async function findStarted<Tx>(
  { ledger, tools }: SagaShop<Tx>,
  place: Place,
  fingerprint: string,
): Promise<Entry> {
  const entry = await ledger.entries.find(place);
  const { scope, key } = place;
  if (entry === undefined)
    throw new HapaxError("saga_not_found", `its retention is over; scope=${scope} key=${key}`);
  if (entry.fingerprint !== fingerprint) {
    tools.meter.add("mismatches_total", 1, { primitive: "saga" });
    const message = `the saga was started with other input; scope=${scope} key=${key}`;
    throw new HapaxError("key_reused", message);
  }
  return entry;
}

/** SA7: returns a digest of the input that does not depend on the order of members. */
async function fingerprintOf(json: string | undefined): Promise<string> {
  const text = json === undefined ? "" : (canonicalText(json) ?? json);
  return `saga-1:${hexOf(await webDigest(new TextEncoder().encode(text)))}`;
}

function byName<Tx>(
  check: Check,
  definitions: readonly { readonly definition: SagaDefinition<Tx> }[],
): SagaDefinitions<Tx> {
  const all = new Map<string, SagaDefinition<Tx>[]>();
  for (const { definition } of definitions) {
    const { name, version, outline, works } = definition;
    const same = all.get(name) ?? [];
    if (works.size === 0) check.problem(`saga=${name} has no steps`);
    if (same.some((one) => one.outline === outline))
      check.problem(`saga=${name} comes twice with the same steps`);
    else if (same.some((one) => one.version === version))
      check.problem(`saga=${name} has two definitions with version=${version}`);
    all.set(name, [...same, definition]);
  }
  return all;
}

function idOf({ scope, key }: Place): string {
  return JSON.stringify([scope, key]);
}
