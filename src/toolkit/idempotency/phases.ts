/**
 * Runs work in steps that are not repeated: recovery points.
 *
 *   - the writes of a phase and its value are committed together, under the token of the claim;
 *   - a later attempt gets the value of a finished phase as it was, and does not run it;
 *   - phases come one after the other, each name once: otherwise the recovery points would not match the work;
 *   - the key that a call gives to a remote service is the same in every attempt.
 */

import { HapaxError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoint.ts";
import type { Ledger } from "../ledgers/ledger.ts";
import type { Claim } from "../once/claiming.ts";
import { jsonCodec } from "../once/result.ts";
import type { Phase } from "./context.ts";
import { PROGRESS_BYTES_MAX } from "./limits.ts";
import { encodeProgress, type Progress } from "./record.ts";

const decoder = new TextDecoder();

interface PhaseParts<Tx> {
  readonly ledger: Ledger<Tx>;
  /** Undefined for a request without a key. Its phases run, and nothing is kept. */
  readonly claim: Claim<Tx> | undefined;
  readonly progress: Progress;
  readonly signal: AbortSignal;
  readonly keyOf: (name: string) => Promise<string>;
}

export class Phases<Tx> {
  readonly #parts: PhaseParts<Tx>;
  readonly #names = new Set<string>();
  #done: Progress["phases"];
  #running: string | undefined;

  constructor(parts: PhaseParts<Tx>) {
    this.#parts = parts;
    this.#done = parts.progress.phases;
  }

  /** Whether a committed phase exists, on which a later attempt builds. */
  get hasAny(): boolean {
    return this.#done.size > 0;
  }

  async run<T>(
    name: string,
    work: (phase: Phase<Tx> | Phase<undefined>) => Promise<T>,
    effect: "transaction" | "call",
  ): Promise<T> {
    this.#enter(name);
    try {
      if (this.#done.has(name)) return decode(this.#done.get(name)) as T; // It was a T when it was kept.
      const { claim, keyOf, signal } = this.#parts;
      signal.throwIfAborted();
      const phase = { key: await keyOf(name), attempt: claim?.attempts ?? 1, signal };
      const value =
        effect === "call"
          ? await this.#call(name, () => work({ ...phase, tx: undefined }))
          : await this.#transaction(name, (tx) => work({ ...phase, tx }));
      await failpoint("http.phase.done");
      return value as T; // It went through JSON, the first time too.
    } finally {
      this.#running = undefined;
    }
  }

  #enter(name: string): void {
    if (this.#running !== undefined)
      throw misuse(`phase=${name} begins while phase=${this.#running} is running`);
    if (typeof name !== "string" || name === "" || name.length > 255)
      throw misuse("the name of a phase is not 1 to 255 characters");
    if (this.#names.has(name)) throw misuse(`phase=${name} comes twice in one request`);
    this.#names.add(name);
    this.#running = name;
  }

  async #call(name: string, work: () => Promise<unknown>): Promise<unknown> {
    const next = this.#with(name, await work());
    await this.#parts.claim?.progress(this.#parts.ledger, this.#encode(next));
    this.#done = next;
    return decode(next.get(name));
  }

  async #transaction(name: string, work: (tx: Tx) => Promise<unknown>): Promise<unknown> {
    const { ledger, claim, signal } = this.#parts;
    if (!ledger.supports.transactions)
      throw new HapaxError(
        "unsupported",
        `ledger=${ledger.name} has no transactions: make it a call`,
      );
    const { isExclusive } = ledger.supports;
    // CK4: other transactions may be in front of it.
    if (isExclusive) claim?.pause();
    try {
      const next = await ledger.transaction(async (tx) => {
        const finished = this.#with(name, await work(tx));
        await claim?.progress(ledger.in(tx), this.#encode(finished));
        return finished;
      }, signal);
      this.#done = next;
      return decode(next.get(name));
    } finally {
      if (isExclusive) await claim?.resume();
    }
  }

  #with(name: string, value: unknown): Progress["phases"] {
    const json = value === undefined ? undefined : decoder.decode(jsonCodec.encode(value));
    return new Map([...this.#done, [name, json]]);
  }

  #encode(phases: Progress["phases"]): Uint8Array {
    const { request } = this.#parts.progress;
    const bytes = encodeProgress({ request, phases });
    const length = bytes.length - (request?.body.length ?? 0);
    if (length <= PROGRESS_BYTES_MAX) return bytes;
    throw misuse(`the values of phases have bytes=${length} max=${PROGRESS_BYTES_MAX}`);
  }
}

function decode(json: string | undefined): unknown {
  return json === undefined ? undefined : JSON.parse(json);
}

function misuse(text: string): HapaxError {
  return new HapaxError("invalid_options", text);
}
