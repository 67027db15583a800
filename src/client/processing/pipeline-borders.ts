/**
 * Checks which streams a pipeline may write: streams of its own server that it does not read.
 *
 * An output that is also an input is read again, and makes the next output, without end. An output of another server
 * cannot be in the transaction of the offset, so every record would fail. Such options cannot work, so
 * they end the pipeline: at its start if they are known, else with the first output.
 */

import { Glob } from "../../base/glob.ts";
import { HapaxError } from "../../base/errors.ts";
import type { Connection } from "./connection.ts";
import { Partitioned } from "./partitioned.ts";
import { Addresses, type StreamTarget } from "./paths.ts";
import type { DeduplicatingSink, PipelineOptions } from "./pipeline-options.ts";

/** How many checked paths are remembered: a function may name a stream for every record, and most are the same few. */
const KNOWN_MAX = 10_000;

type BorderOptions = Pick<PipelineOptions, "from" | "to" | "deadLetter" | "state"> & {
  readonly sink?: object;
};

export class Borders {
  readonly #addresses: Addresses;
  readonly #glob: Glob | undefined;
  readonly #inputs: ReadonlySet<string>;
  readonly #known = new Set<string>();

  /** Throws `invalid_options` if the pipeline may not write a stream of the options. */
  constructor(hapax: Connection, options: BorderOptions) {
    const { from, to, deadLetter, sink, state } = options;
    this.#addresses = new Addresses(hapax.url);
    this.#glob = from.pattern === undefined ? undefined : new Glob(from.pattern);
    this.#inputs = new Set(from.streams?.map((stream) => this.#pathOf("from.streams", stream)));
    if (deadLetter !== undefined) this.path("deadLetter", deadLetter);
    if (to instanceof Partitioned) for (const stream of to.streams) this.path("to", stream);
    else if (to !== undefined && typeof to !== "function") this.path("to", to);
    if (typeof state?.changelog === "string") this.#requireChangelogs(state.changelog);
    // Cast: only deduplicating sinks have a target.
    const target = sink === undefined ? undefined : (sink as Partial<DeduplicatingSink>).target;
    if (target !== undefined && this.#isHere(target)) this.path("sink", target);
  }

  /** Returns the path of a stream that the pipeline wants to write. Throws `invalid_options`. */
  path(option: string, target: StreamTarget): string {
    const path = this.#pathOf(option, target);
    if (this.#known.has(path)) return path;
    if (this.#inputs.has(path) || this.#glob?.matches(path) === true) {
      const words = `${path} is read and written by the same pipeline`;
      throw new HapaxError("invalid_options", `${option}: ${words}: it would never end`);
    }
    if (this.#known.size >= KNOWN_MAX) this.#known.clear();
    this.#known.add(path);
    return path;
  }

  /** Checks the changelogs of the known streams. Those of a pattern are checked when they are created. */
  #requireChangelogs(changelog: string): void {
    for (const input of this.#inputs) this.path("state.changelog", changelog + input);
  }

  #pathOf(option: string, target: StreamTarget): string {
    try {
      return this.#addresses.pathOf(target);
    } catch (error) {
      const words = error instanceof Error ? error.message : String(error);
      const advice = "for streams of another server there is streamSink";
      throw new HapaxError("invalid_options", `${option}: ${words}; ${advice}`, { cause: error });
    }
  }

  #isHere({ url }: { readonly url: string }): boolean {
    return url.startsWith(`${this.#addresses.base}/`);
  }
}
