/**
 * Work of an object that is done once for a key. Its result is kept, and every later call gets it.
 *
 *   - work that does not await is one transaction with its record, which is one row;
 *   - work that awaits is claimed first. Calls that come meanwhile get its outcome. What it writes is written by `commit`, in one
 *     transaction with the record; a crash in between repeats it under the same key;
 *   - other content under the same key is refused.
 */

import { HapaxError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoint.ts";
import type { JsonOf } from "../../base/json-of.ts";
import type { ObjectStorage } from "../ledgers/durable-object.ts";
import type { Entry, EntryWrite, Expected, Place } from "../ledgers/ledger.ts";
import { Check } from "../once/check.ts";
import { RESULT_BYTES_DEFAULT, RETAIN_MS_MAX } from "../once/limits.ts";
import { InProgress, type OnceResult } from "../once/process-once.ts";
import { remoteKey } from "../once/remote-key.ts";
import { encodeResult, jsonCodec } from "../once/result.ts";
import { type ClaimDecision, decideClaim } from "../rules/claim.ts";
import { decideMessageAge } from "../rules/inbox-window.ts";
import type { ScopedKey } from "../rules/scoped-key.ts";
import { type ObjectWork, requireSync, type Steps } from "./steps.ts";

/** Options of one `process`. All are optional. */
export interface ProcessOptions {
  /** A digest of the content. The same key with another one is refused with `key_reused`. Default: not compared. */
  readonly fingerprint?: string;
  /** How long the result is kept, in milliseconds. Default: that of `exactlyOnce`. */
  readonly retainMs?: number;
  /** When the event was sent, by its sender's clock. An unknown event that is older than `retainMs` is refused with `key_expired`. */
  readonly sentAtMs?: number;
}

/** Options of work that awaits. */
export interface ProcessElsewhereOptions<Storage, T> extends ProcessOptions {
  /** The work may be repeated after a crash, because the other side recognises the `key` that it gets. */
  readonly effect: "repeatable";
  /** Writes the result into the object's own tables, and emits events: in one transaction with the record of the work. */
  readonly commit?: (result: T, work: ObjectWork<Storage>) => void;
}

/** The argument of work that awaits. */
export interface ProcessCall {
  /** Pass it to the other side as the idempotency key: the same in every attempt. */
  readonly key: string;
  /** 1 is the first. */
  readonly attempt: number;
}

/** How long a claim lasts that no life of the object holds any more. The next life frees it at once. */
const LEASE_MS = 60_000;

type Kept = {
  readonly data: Uint8Array | undefined;
  readonly isDuplicate: boolean;
  readonly token: number;
};

/** What the object wants to know of its work. */
export interface ProcessingEvents {
  /** In the step that keeps a result. */
  kept(): void;
  duplicate(): void;
}

export class Processing<Storage extends ObjectStorage> {
  readonly #steps: Steps<Storage>;
  readonly #retainMs: number;
  readonly #nowMs: () => number;
  readonly #tell: ProcessingEvents;
  readonly #flights = new Map<
    string,
    { readonly fingerprint: string | undefined; readonly end: Promise<Kept> }
  >();

  constructor(
    steps: Steps<Storage>,
    retainMs: number,
    nowMs: () => number,
    tell: ProcessingEvents,
  ) {
    this.#steps = steps;
    this.#retainMs = retainMs;
    this.#nowMs = nowMs;
    this.#tell = tell;
  }

  async inTransaction<T>(
    identity: ScopedKey,
    work: (work: ObjectWork<Storage>) => T,
    options: ProcessOptions,
  ): Promise<OnceResult<JsonOf<T>>> {
    const job = this.#job(identity, options);
    await failpoint("object.began");
    const kept = await this.#steps.run((context): Kept => {
      const entries = this.#steps.ledger.sync(context.tx);
      const entry = entries.find(job.place);
      const decision = decideClaim(entry, { ...job, effect: "transaction" });
      if (decision.kind === "done") return duplicateOf(entry);
      const attempts = this.#requireClaim(job, decision);
      const data = bytesOf(requireSync(work(context)));
      const write = doneWrite(job, attempts, data, "next");
      const { token } = written(entries.put(job.place, expectedOf(entry), write));
      this.#tell.kept();
      return { data, isDuplicate: false, token };
    });
    await failpoint("object.committed");
    return this.#answer(kept);
  }

  async elsewhere<T>(
    identity: ScopedKey,
    work: (call: ProcessCall) => Promise<T>,
    options: ProcessElsewhereOptions<Storage, T>,
  ): Promise<OnceResult<JsonOf<T>>> {
    const job = this.#job(identity, options);
    const id = JSON.stringify([job.place.scope, job.place.key]);
    const flight = this.#flights.get(id);
    if (flight !== undefined) {
      const { fingerprint } = flight;
      const isOther = fingerprint !== undefined && job.fingerprint !== undefined;
      if (isOther && fingerprint !== job.fingerprint) throw reused(job.place);
      const kept = await flight.end;
      return this.#answer({ ...kept, isDuplicate: true });
    }
    const end = this.#attempt(job, work, options.commit);
    this.#flights.set(id, { fingerprint: job.fingerprint, end });
    try {
      return this.#answer(await end);
    } finally {
      this.#flights.delete(id);
    }
  }

  async #attempt<T>(
    job: Job,
    work: (call: ProcessCall) => Promise<T>,
    commit: ((result: T, work: ObjectWork<Storage>) => void) | undefined,
  ): Promise<Kept> {
    const { place } = job;
    const claimed = await this.#steps.run((context) => {
      const entries = this.#steps.ledger.sync(context.tx);
      const entry = entries.find(place);
      const decision = decideClaim(entry, { ...job, effect: "repeatable" });
      if (decision.kind === "done") return duplicateOf(entry);
      const attempts = this.#requireClaim(job, decision);
      const keepMs = Math.max(job.keepMs, LEASE_MS);
      const write = {
        ...doneWrite(job, attempts, undefined, "next"),
        state: "running" as const,
        leaseMs: LEASE_MS,
        keepMs,
      };
      const { token } = written(entries.put(place, expectedOf(entry), write));
      return { attempts, token };
    });
    if ("data" in claimed) return claimed;
    await failpoint("object.claimed");
    const { attempts, token } = claimed;
    try {
      const key = await remoteKey([place.scope, place.key]);
      const result = await work({ key, attempt: attempts });
      await failpoint("object.worked");
      const kept = await this.#complete(job, claimed, result, commit);
      await failpoint("object.completed");
      return kept;
    } catch (error) {
      // Also if what it writes was refused: the next call does not wait for the end of the lease.
      await this.#release(job, token, attempts).catch(() => undefined);
      throw error;
    }
  }

  #complete<T>(
    job: Job,
    { attempts, token }: { readonly attempts: number; readonly token: number },
    result: T,
    commit: ((result: T, work: ObjectWork<Storage>) => void) | undefined,
  ): Promise<Kept> {
    const { place } = job;
    return this.#steps.run((context): Kept => {
      const data = bytesOf(result);
      if (commit !== undefined) requireSync<unknown>(commit(result, context));
      const write = doneWrite(job, attempts, data, "same");
      const put = this.#steps.ledger.sync(context.tx).put(place, { kind: "owned", token }, write);
      if (put === undefined)
        throw new HapaxError(
          "lease_lost",
          `another call has taken the work over; ${whereOf(place)}`,
        );
      this.#tell.kept();
      return { data, isDuplicate: false, token };
    });
  }

  /** The next call does the work again. */
  async #release(job: Job, token: number, attempts: number): Promise<void> {
    const { place } = job;
    const write = { ...doneWrite(job, attempts, undefined, "same"), state: "released" as const };
    await this.#steps.run(({ tx }) =>
      this.#steps.ledger.sync(tx).put(place, { kind: "owned", token }, write),
    );
  }

  #job(identity: ScopedKey, { fingerprint, retainMs, sentAtMs }: ProcessOptions): Job {
    const check = new Check();
    const place = { kind: "once", ...check.identity(identity) };
    const keepMs = check.whole("retainMs", retainMs, this.#retainMs, 1, RETAIN_MS_MAX);
    if (fingerprint !== undefined) check.name("fingerprint", fingerprint);
    if (sentAtMs !== undefined && !Number.isFinite(sentAtMs))
      check.problem(`sentAtMs=${sentAtMs} is not a time`);
    check.end("invalid_request");
    const age = decideMessageAge(sentAtMs, this.#nowMs(), keepMs);
    const attemptsMax = Number.MAX_SAFE_INTEGER;
    return { place, keepMs, fingerprint, attemptsMax, isTooOld: age.kind === "expired" };
  }

  /** Returns the number of the attempt, or throws why there is none. */
  #requireClaim({ place, isTooOld }: Job, decision: ClaimDecision): number {
    switch (decision.kind) {
      case "claim":
        if (!isTooOld) return decision.attempts;
        throw new HapaxError(
          "key_expired",
          `the event is older than retainMs, and may have been processed; ${whereOf(place)}`,
        );
      case "running":
        throw new InProgress(whereOf(place), decision.leaseLeftMs);
      case "mismatch":
        throw reused(place);
      case "failed":
        throw new HapaxError("failure_kept", `processOnce keeps it; ${whereOf(place)}`);
      case "done":
      case "exhausted":
      case "probe":
        throw new Error(`a claim without a limit cannot be ${decision.kind}`);
    }
  }

  #answer<T>({ data, isDuplicate, token }: Kept): OnceResult<JsonOf<T>> {
    if (isDuplicate) this.#tell.duplicate();
    // Casts: the codec can decode everything that it has encoded, and `undefined` has no bytes.
    const result = (data === undefined ? undefined : jsonCodec.decode(data)) as JsonOf<T>;
    return { result, isDuplicate, token };
  }
}

interface Job {
  readonly place: Place;
  readonly keepMs: number;
  readonly fingerprint: string | undefined;
  readonly attemptsMax: number;
  readonly isTooOld: boolean;
}

function written<T>(result: T | undefined): T {
  if (result === undefined) throw new Error("a step sees what it has found");
  return result;
}

function duplicateOf(entry: Entry | undefined): Kept {
  return { data: entry?.data, isDuplicate: true, token: entry?.token ?? 0 };
}

function bytesOf(result: unknown): Uint8Array | undefined {
  return encodeResult(result, jsonCodec, RESULT_BYTES_DEFAULT);
}

function expectedOf(entry: Entry | undefined): Expected {
  if (entry === undefined) return { kind: "absent" };
  return { kind: "unchanged", token: entry.token, revision: entry.revision };
}

function doneWrite(
  { keepMs, fingerprint }: Job,
  attempts: number,
  data: Uint8Array | undefined,
  token: "next" | "same",
): EntryWrite {
  return {
    state: "done",
    token,
    attempts,
    leaseMs: undefined,
    keepMs,
    fingerprint: { value: fingerprint },
    data: { value: data },
  };
}

function whereOf({ scope, key }: Place): string {
  return `scope=${scope} key=${key}`;
}

function reused(place: Place): HapaxError {
  return new HapaxError("key_reused", `the key was used for other content; ${whereOf(place)}`);
}
