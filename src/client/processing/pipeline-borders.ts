/**
 * What a pipeline may write: streams of its own server that it does not read.
 *
 * An output that is also an input is read again, and makes the next output: without an end. An output of another server
 * cannot be in the transaction of the offset, so that every record would fail. Both are settings that cannot work, so
 * they end the pipeline: where they are known at its start, else with the first output.
 */

import { Glob } from "../../base/glob.ts";
import { HapaxError } from "../../base/errors.ts";
import type { Connection } from "./connection.ts";
import { Partitioned } from "./partitioned.ts";
import { Addresses, type StreamTarget } from "./paths.ts";
import type { DeduplicatingSink, PipelineOptions } from "./pipeline-settings.ts";

/** Paths that are known to be fine: a function may name a stream for every record, and most are the same few. */
const KNOWN_MAX = 10_000;

type BorderSettings = Pick<PipelineOptions, "from" | "to" | "deadLetter" | "state"> & {
  readonly sink?: object;
};

export class Borders {
  readonly #addresses: Addresses;
  readonly #glob: Glob | undefined;
  readonly #inputs: ReadonlySet<string>;
  readonly #known = new Set<string>();

  /** Throws `invalid_settings` if what the settings name cannot be written. */
  constructor(hapax: Connection, settings: BorderSettings) {
    const { from, to, deadLetter, sink, state } = settings;
    this.#addresses = new Addresses(hapax.url);
    this.#glob = from.pattern === undefined ? undefined : new Glob(from.pattern);
    this.#inputs = new Set(from.streams?.map((stream) => this.#pathOf("from.streams", stream)));
    if (deadLetter !== undefined) this.path("deadLetter", deadLetter);
    if (to instanceof Partitioned) for (const stream of to.streams) this.path("to", stream);
    else if (to !== undefined && typeof to !== "function") this.path("to", to);
    if (typeof state?.changelog === "string") this.#requireChangelogs(state.changelog);
    // Cast: the one kind of sinks that has it, or nothing.
    const target = sink === undefined ? undefined : (sink as Partial<DeduplicatingSink>).target;
    if (target !== undefined && this.#isHere(target)) this.path("sink", target);
  }

  /** The path of a stream that the pipeline wants to write. Throws `invalid_settings`. */
  path(setting: string, target: StreamTarget): string {
    const path = this.#pathOf(setting, target);
    if (this.#known.has(path)) return path;
    if (this.#inputs.has(path) || this.#glob?.matches(path) === true) {
      const words = `${path} is read and written by the same pipeline`;
      throw new HapaxError("invalid_settings", `${setting}: ${words}: it would never end`);
    }
    if (this.#known.size >= KNOWN_MAX) this.#known.clear();
    this.#known.add(path);
    return path;
  }

  /** The changelogs of the streams that are known; those of a pattern are looked at when they are made. */
  #requireChangelogs(changelog: string): void {
    for (const input of this.#inputs) this.path("state.changelog", changelog + input);
  }

  #pathOf(setting: string, target: StreamTarget): string {
    try {
      return this.#addresses.pathOf(target);
    } catch (error) {
      const words = error instanceof Error ? error.message : String(error);
      const advice = "for streams of another server there is streamSink";
      throw new HapaxError("invalid_settings", `${setting}: ${words}; ${advice}`, { cause: error });
    }
  }

  #isHere({ url }: { readonly url: string }): boolean {
    return url.startsWith(`${this.#addresses.base}/`);
  }
}
