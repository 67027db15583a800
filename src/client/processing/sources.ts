/**
 * Reads leased streams: each from its committed offset, every record once and in order.
 *
 *   - a batch has all records that the stream had at the request, up to one page: a slow reader gets larger batches;
 *   - at most `liveMax` streams have a connection of their own to wait for records. The others are polled in turn, a few
 *     at a time, an idle one ever more seldom; one that has data takes the place of one that was silent for long.
 */

import { assert } from "../../base/assert.ts";
import { doubledMs } from "../../base/backoff.ts";
import type { Caller } from "../attempt.ts";
import type { Batch } from "../batches.ts";
import { startFollowing } from "../follow.ts";
import type { Reconnect } from "../line.ts";
import { startReading } from "../reading.ts";
import { Turns } from "../../base/turns.ts";
import type { Addresses } from "./paths.ts";
import { fromOffset } from "./places.ts";
import { storedUrl } from "./stored.ts";

/** The most requests at once for the streams that are polled in turn. */
const POLLS_MAX = 4;
/** The time between two polls of an idle stream doubles up to this. */
const POLL_MS_MAX = 5_000;
/** A stream that had no data for so long may lose its place. */
const SILENT_MS_MIN = 10_000;

export interface SourceOptions {
  readonly liveMax: number;
  readonly pollMs: number;
  readonly patienceMs: number;
  readonly onReconnect: ((reconnect: Reconnect) => void) | undefined;
}

interface SourceSlot {
  readonly controller: AbortController;
  activeMs: number;
  isTaken: boolean;
}

export class Sources {
  readonly #caller: Caller;
  readonly #addresses: Addresses;
  readonly #options: SourceOptions;
  readonly #places = new Set<SourceSlot>();
  readonly #turns = new Turns(POLLS_MAX);

  constructor(caller: Caller, addresses: Addresses, options: SourceOptions) {
    this.#caller = caller;
    this.#addresses = addresses;
    this.#options = options;
  }

  /** Yields batches of this life of the stream, from the offset on, until the stream is closed; the last one says so. */
  async *batches<T>(
    path: string,
    life: string,
    from: string,
    signal: AbortSignal,
  ): AsyncGenerator<Batch<T>, void, undefined> {
    let isFirst = true;
    for await (const batch of this.#whole<T>(path, life, from, signal)) {
      // Pages end between appends, so only the first one can begin before its place.
      yield isFirst ? fromOffset(batch, from) : batch;
      isFirst = false;
    }
  }

  /** Yields the same in whole appends. */
  async *#whole<T>(
    path: string,
    life: string,
    from: string,
    signal: AbortSignal,
  ): AsyncGenerator<Batch<T>, void, undefined> {
    let offset = from;
    let isActive = true;
    for (let idle = 0; ; idle = isActive ? 0 : idle + 1) {
      const place = this.#takePlace(isActive);
      if (place !== undefined) {
        for await (const batch of this.#live<T>(path, `${offset}/${life}`, place, signal)) {
          offset = batch.nextOffset;
          yield batch;
          if (batch.closed) return;
        }
      }
      if (!isActive || place !== undefined) {
        const bounds = { pauseMs: this.#options.pollMs, pauseMsMax: POLL_MS_MAX };
        await this.#caller.wait(doubledMs(idle + 1, bounds), signal);
      }
      const page = await this.#turns.run(() => this.#page<T>(path, `${offset}/${life}`, signal));
      offset = page.nextOffset;
      isActive = page.records.length > 0;
      if (isActive || page.closed) yield page;
      if (page.closed) return;
    }
  }

  async *#live<T>(
    path: string,
    from: string,
    place: SourceSlot,
    signal: AbortSignal,
  ): AsyncGenerator<Batch<T>, void, undefined> {
    const { controller } = place;
    const abort = (): void => {
      controller.abort(signal.reason);
    };
    signal.addEventListener("abort", abort, { once: true });
    if (signal.aborted) abort();
    const { patienceMs, onReconnect } = this.#options;
    try {
      const following = startFollowing<T>(this.#caller, this.#address(path), {
        from,
        live: "long-poll",
        patienceMs,
        signal: controller.signal,
        ...(onReconnect === undefined ? {} : { onReconnect }),
      });
      for await (const batch of following.batches()) {
        place.activeMs = this.#caller.options.clock.steadyMs();
        yield batch;
      }
    } catch (error) {
      // Another stream has the place now; this one is polled in turn.
      if (!place.isTaken || signal.aborted) throw error;
    } finally {
      signal.removeEventListener("abort", abort);
      this.#places.delete(place);
    }
  }

  #address(path: string): string {
    return storedUrl(this.#addresses, path);
  }

  async #page<T>(path: string, from: string, signal: AbortSignal): Promise<Batch<T>> {
    const { patienceMs, onReconnect } = this.#options;
    const reading = startReading<T>(this.#caller, this.#address(path), {
      from,
      patienceMs,
      signal,
      ...(onReconnect === undefined ? {} : { onReconnect }),
    });
    for await (const page of reading.pages()) return page;
    throw new Error("a reading has at least one page");
  }

  #takePlace(isActive: boolean): SourceSlot | undefined {
    const activeMs = this.#caller.options.clock.steadyMs();
    if (this.#places.size >= this.#options.liveMax) {
      if (!isActive) return undefined;
      let silent: SourceSlot | undefined;
      for (const place of this.#places) {
        if (silent === undefined || place.activeMs < silent.activeMs) silent = place;
      }
      if (silent === undefined || activeMs - silent.activeMs < SILENT_MS_MIN) return undefined;
      silent.isTaken = true;
      this.#places.delete(silent);
      silent.controller.abort(new Error("another stream has the place"));
    }
    const place = { controller: new AbortController(), activeMs, isTaken: false };
    this.#places.add(place);
    assert(this.#places.size <= this.#options.liveMax, "more streams are live than allowed");
    return place;
  }
}
