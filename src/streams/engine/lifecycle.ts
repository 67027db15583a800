/** Streams are created, forked and deleted. PROTOCOL.md §3, §6, §8. */

import {
  type CreateCommand,
  type CreateDecision,
  decideCreate,
  type ForkCommand,
  type ForkSource,
} from "../core/create.ts";
import type { StreamState } from "../core/stream.ts";
import { assert } from "../../base/assert.ts";
import { earliestOf } from "../core/trim.ts";
import type { StreamName } from "../core/types.ts";
import type { Act } from "./acts.ts";
import { findForkSource, type RecordsEnd } from "./fork-source.ts";
import type { Allowance } from "./holdings.ts";
import { type DeleteOutcome, GONE, MISSING } from "./outcomes.ts";
import type { Writer } from "./writer.ts";

export class Lifecycle {
  readonly #writer: Writer;
  readonly #jsonRecordsEnd: RecordsEnd;

  constructor(writer: Writer, jsonRecordsEnd: RecordsEnd) {
    this.#writer = writer;
    this.#jsonRecordsEnd = jsonRecordsEnd;
  }

  async create(command: CreateCommand, allowance?: Allowance): Promise<CreateDecision> {
    const writer = this.#writer;
    writer.room.admit(command.data.length + this.#eventBytes(command));
    for (;;) {
      let source: ForkSource | undefined;
      if (command.fork !== undefined && writer.find(command.name) === undefined) {
        const found = await findForkSource(writer, this.#jsonRecordsEnd, command.fork);
        if ("kind" in found) return writer.answer(command.fork.sourceName, undefined, found);
        source = found;
        // The source may have gone while its data was read, or lost this data: then look again.
        if (writer.find(command.fork.sourceName) !== source.state) continue;
        if (this.#isTrimmed(source, command.fork)) continue;
      }
      const existing = writer.find(command.name);
      if (existing === undefined && command.fork !== undefined && source === undefined) continue;
      return this.#decideCreate(command, existing, source, allowance);
    }
  }

  /** What a fork begins with is asked for in the step that decides it: from then on it is needed. */
  #isTrimmed({ state }: ForkSource, { anchor }: ForkCommand): boolean {
    if (state === undefined || state.isDeleted || anchor === undefined) return false;
    return anchor < earliestOf(this.#writer.world, state);
  }

  delete(name: StreamName, act?: Act): Promise<DeleteOutcome> {
    const writer = this.#writer;
    const state = writer.find(name);
    if (state === undefined) return writer.answer(name, undefined, MISSING);
    if (state.isDeleted) return writer.answer(name, state, GONE);
    const eventBytes = writer.eventBytes(name, state.contentType);
    if (eventBytes === 0) writer.room.admitRemoval();
    else writer.room.admit(eventBytes);
    act?.guard();
    const batch = writer.expiry.end(state);
    act?.note({}, batch);
    return batch.done.then(() => ({ kind: "deleted" }) as const);
  }

  /** It is created, and may be closed at once. A fork may have the longer type of its source. */
  #eventBytes({ name, contentType, fork }: CreateCommand): number {
    const source = fork === undefined ? undefined : this.#writer.world.streams.get(fork.sourceName);
    const type = source?.contentType ?? contentType ?? "";
    return this.#writer.eventBytes(name, type, 2);
  }

  #decideCreate(
    command: CreateCommand,
    existing: StreamState | undefined,
    source: ForkSource | undefined,
    allowance: Allowance | undefined,
  ): Promise<CreateDecision> {
    const writer = this.#writer;
    const { nextId } = writer.world;
    const { retentionDefault } = writer;
    const asked = { ...command, retentionDefault };
    const decision = decideCreate(existing, source, asked, nextId, writer.run, writer.nowMs());
    if (decision.kind !== "created") {
      if (existing !== undefined && !existing.isDeleted) writer.expiry.touch(existing);
      const [name, state] =
        existing === undefined && command.fork !== undefined
          ? [command.fork.sourceName, source?.state]
          : [command.name, existing];
      return writer.answer(name, state, decision);
    }
    // A fork has waited since it was admitted.
    writer.room.admit(command.data.length + this.#eventBytes(command));
    allowance?.admit(1, command.data.length);
    const batch = writer.begin();
    for (const change of decision.changes) writer.stage(change, batch);
    const state = writer.world.streams.get(command.name);
    assert(state !== undefined, `a stream that was created is not there: id=${nextId}`);
    writer.expiry.watch(state);
    return batch.done.then(() => {
      if (writer.meter !== undefined) writer.meter.appendedBytes += command.data.length;
      return decision;
    });
  }
}
