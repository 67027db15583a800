/**
 * Old data goes: at once by a cut, and by the rule of its stream. PROTOCOL.md §23.
 *
 *   - a trim is a change like any other: decided and staged in one step, durable before it is answered;
 *   - a rule is looked at when an append has made a mark or moved one out of the bytes that stay, and when the age of the oldest
 *     data is over: no timer a stream;
 *   - on a full disk trims go on as deletes do, because they free room.
 */

import {
  decideRetention,
  decideTrim,
  earliestOf,
  isMarkFreed,
  neededFrom,
  retentionDueMs,
} from "../core/trim.ts";
import type { RetentionRule } from "../core/trim.ts";
import type { StreamState } from "../core/stream.ts";
import type { Offset, StreamId, StreamName } from "../core/types.ts";
import { Deadlines } from "./deadlines.ts";
import { type Gone, GONE, type Missing, MISSING, type TrimOutcome } from "./outcomes.ts";
import { readAcrossForks } from "./reading.ts";
import type { Writer } from "./writer.ts";

/** Between two looks at data that is over its age and still needed, or that a full disk keeps. */
const REST_MS = 10_000;

export interface CutCommand {
  /** What is before it goes, up to the append that holds it. */
  readonly before: Offset;
  readonly dropsNeeded: boolean;
}

export type RetentionOutcome = { readonly kind: "set" } | Missing | Gone;

export class Trims {
  readonly #writer: Writer;
  readonly #deadlines: Deadlines<StreamId>;
  readonly #watched = new Set<StreamId>();

  constructor(writer: Writer) {
    this.#writer = writer;
    this.#deadlines = new Deadlines(
      writer.clock,
      () => writer.nowMs(),
      (id) => {
        this.#watched.delete(id);
        this.#look(id);
      },
    );
    for (const state of writer.world.byId.values()) this.#watch(state);
    writer.onRetained((state, start) => {
      this.#appended(state, start);
    });
  }

  stop(): void {
    this.#deadlines.stop();
  }

  cut(name: StreamName, command: CutCommand): Promise<TrimOutcome> {
    return this.#cut(name, command, this.#writer.find(name));
  }

  async #cut(
    name: StreamName,
    { before, dropsNeeded }: CutCommand,
    state: StreamState | undefined,
  ): Promise<TrimOutcome> {
    const writer = this.#writer;
    if (state === undefined) return writer.answer(name, undefined, MISSING);
    if (state.isDeleted) return writer.answer(name, state, GONE);
    await writer.answer(name, state, undefined);
    const tail = writer.durableTail(state);
    if (before > tail) return { kind: "beyond_tail", tail };
    const to = await this.#startOf(state, before);
    // It may have gone meanwhile, and the offset means nothing in another stream at the path.
    if (writer.find(name) !== state) return writer.answer(name, undefined, MISSING);
    if (state.isDeleted) return writer.answer(name, state, GONE);
    writer.room.admitRemoval();
    const decision = decideTrim(writer.world, state, to, dropsNeeded, writer.nowMs());
    if (decision.kind === "needed") return writer.settled().then(() => decision);
    if (decision.kind === "trimmed") writer.stage(decision.change);
    const earliest = earliestOf(writer.world, state);
    const isRepeated = decision.kind === "unchanged";
    return writer.settled().then(() => ({ kind: "trimmed", earliest, isRepeated }) as const);
  }

  /** Sets the rule of a stream, or takes it away. What is there beyond its bytes goes at once. */
  async setRule(name: StreamName, rule: RetentionRule | undefined): Promise<RetentionOutcome> {
    const writer = this.#writer;
    const state = writer.find(name);
    if (state === undefined) return writer.answer(name, undefined, MISSING);
    if (state.isDeleted) return writer.answer(name, state, GONE);
    writer.room.admitRemoval();
    const { done } = writer.stage({
      kind: "retention_set",
      atMs: writer.nowMs(),
      stream: state.id,
      rule,
    });
    this.#watch(state);
    await done;
    const bytes = rule?.bytes ?? Infinity;
    const needed = rule?.dropsNeeded === true ? undefined : neededFrom(writer.world, state);
    const before = Math.min(state.tail - bytes, needed?.from ?? Infinity) as Offset;
    // Another stream at the path has nothing to do with this rule.
    if (before <= 0 || writer.find(name) !== state) return { kind: "set" };
    // What is needed by then stays, and goes by the rule later.
    await this.#cut(name, { before, dropsNeeded: rule?.dropsNeeded === true }, state);
    return { kind: "set" };
  }

  #appended(state: StreamState, start: Offset): void {
    if (state.retained?.rule === undefined) return;
    // There is a new place to cut at, or an old one has got out of what the rule keeps. Each of these happens once for each mark.
    const isNew = state.retained.marks.at(-1)?.offset === start;
    if (isNew || isMarkFreed(state, start)) this.#look(state.id);
    // The first append after a trim of everything needs a deadline.
    else this.#watch(state);
  }

  #look(id: StreamId): void {
    const writer = this.#writer;
    const state = writer.world.byId.get(id);
    if (state === undefined || state.isDeleted || writer.stopped !== undefined) return;
    const nowMs = writer.nowMs();
    const decision = decideRetention(writer.world, state, nowMs);
    if (decision.kind === "trimmed" && writer.room.mayFree) writer.stage(decision.change);
    this.#watch(state);
  }

  /** One deadline a stream. */
  #watch(state: StreamState): void {
    if (this.#watched.has(state.id)) return;
    const dueMs = retentionDueMs(state);
    if (dueMs === undefined) return;
    const nowMs = this.#writer.nowMs();
    this.#watched.add(state.id);
    this.#deadlines.add(dueMs > nowMs ? dueMs : nowMs + REST_MS, state.id);
  }

  /** Where the append begins that holds the offset. */
  async #startOf(state: StreamState, offset: Offset): Promise<Offset> {
    const { store } = this.#writer;
    const tail = this.#writer.durableTail(state);
    if (offset >= tail) return tail;
    const page = await readAcrossForks(store, state, offset, tail, 1);
    page.release();
    return page.start;
  }
}
