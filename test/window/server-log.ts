/**
 * A log that chooses positions itself and has no dedup: it appends what it gets, as a partition of Kafka does. It can lose requests
 * and answers, store a part of a batch, and store a request late. Epochs fence, as those of Kafka's transactional ids do.
 */

import type { LogPosition } from "../../src/toolkit/rules/window.ts";
import type { LogBatch, ServerLog } from "../../src/toolkit/window/log.ts";

type Stored = LogBatch["entries"][number] & { readonly atMs: number };

/** What happens to an append. `late`: it is stored when `settle` is called. */
export type AppendFate = "stored" | "request lost" | "answer lost" | "half" | "late";

export class PartitionedLog implements ServerLog {
  readonly positions = "log";
  readonly isOrdered = false;
  readonly partitions: Stored[][];
  /** Every read, as `partition from`. */
  readonly reads: string[] = [];
  fate: () => AppendFate = () => "stored";
  #epoch = 0;
  #appends = 0;
  #late: (() => void)[] = [];

  constructor(partitions: number) {
    this.partitions = Array.from({ length: partitions }, () => []);
  }

  extent() {
    const segments = this.partitions.map((_, segment) => ({ segment, isSealed: false }));
    return Promise.resolve({ segments });
  }

  async *read(segment: number, start: number) {
    this.reads.push(`${segment} ${start}`);
    await Promise.resolve();
    const stored = this.partitions[segment] ?? [];
    for (let at = start; at < stored.length; at += 1) {
      const entry = stored[at];
      if (entry !== undefined) yield { start: at, atMs: entry.atMs, entries: [entry] };
    }
  }

  open() {
    this.#epoch += 1;
    const epoch = this.#epoch;
    return Promise.resolve({
      epoch,
      append: (batch: LogBatch) => this.#append(epoch, batch),
      settle: () => {
        // Nothing is on its way after this.
        for (const store of this.#late.splice(0)) store();
        return Promise.resolve();
      },
    });
  }

  async #append(epoch: number, batch: LogBatch): Promise<readonly LogPosition[] | "fenced"> {
    await Promise.resolve();
    if (epoch !== this.#epoch) return "fenced";
    const fate = this.fate();
    if (fate === "request lost") throw new Error("planned: the request is lost");
    if (fate === "late") {
      this.#late.push(() => void this.#store(batch));
      throw new Error("planned: the request is late");
    }
    if (fate === "half") {
      this.#store({
        ...batch,
        entries: batch.entries.slice(0, Math.ceil(batch.entries.length / 2)),
      });
      throw new Error("planned: a part was stored");
    }
    const positions = this.#store(batch);
    if (fate === "answer lost") throw new Error("planned: the answer is lost");
    return positions;
  }

  #store({ atMs, entries }: LogBatch): LogPosition[] {
    return entries.map((entry) => {
      const segment = this.#appends % this.partitions.length;
      this.#appends += 1;
      const partition = this.partitions[segment] ?? [];
      partition.push({ ...entry, atMs });
      return { segment, entry: partition.length - 1 };
    });
  }
}
