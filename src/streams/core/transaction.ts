/**
 * Decides what a transaction does: all of its operations, or none. It decides on the state before the transaction and
 * on what earlier operations of it will do. The engine stages the result in one batch. PROTOCOL.md §19.
 *
 *   TX1  an operation that cannot be done refuses all of them, by its index, and nothing is changed;
 *   TX2  expectations are about the state before the transaction;
 *   TX3  an operation sees what those before it have done: a stream that was created can be appended to, and one that
 *        was closed cannot;
 *   TX4  a commit counts only with the newest token of its stream (GD4), an ack only with its wake, and the end of a job only
 *        by its worker;
 *   TX5  a cursor and a subscription are moved by one operation each.
 */

import type { Change } from "./change.ts";
import { type CreateCommand, decideCreate } from "./create.ts";
import { type CommitRefusal, decideCommit, findLease } from "./group-decide.ts";
import type { GroupId } from "./group-state.ts";
import { decideSettle } from "./job-decide.ts";
import { isSameMediaType, type StreamState } from "./stream.ts";
import { type AckDecision, decideAck, type Scene } from "./subscription-decide.ts";
import type { SubscriptionChange } from "./subscription.ts";
import type {
  AckOperation,
  AppendOperation,
  CommitOperation,
  CreateOperation,
  DoneOperation,
  Expectation,
  LeaseClaim,
  Operation,
  UnfitReason,
} from "./transaction-state.ts";
import type { RetentionRule } from "./trim.ts";
import type { Offset, RunId, StreamId, StreamName } from "./types.ts";
import type { World } from "./world.ts";

/** Why an operation cannot be done. */
export type OperationRefusal =
  | { readonly kind: "stream_missing"; readonly stream: StreamName }
  | { readonly kind: "stream_gone"; readonly stream: StreamName }
  | { readonly kind: "stream_closed"; readonly stream: StreamName; readonly tail: Offset }
  | { readonly kind: "content_type_mismatch"; readonly expected: string }
  | { readonly kind: "create_conflict"; readonly reason: string }
  | { readonly kind: "stream_present"; readonly stream: StreamName; readonly tail: Offset }
  | { readonly kind: "tail_moved"; readonly stream: StreamName; readonly tail: Offset }
  | { readonly kind: "group_missing"; readonly group: GroupId }
  | { readonly kind: "named_twice" }
  | UnfitReason
  | Extract<AckDecision, { kind: "invalid_ack" }>
  | CommitRefusal;

/** What one operation will do. */
export type Step =
  | { readonly kind: "stream"; readonly changes: readonly Change[]; readonly name: StreamName }
  | { readonly kind: "group"; readonly changes: readonly Change[] }
  | { readonly kind: "ack"; readonly changes: readonly SubscriptionChange[] }
  | { readonly kind: "nothing" };

export type OperationsDecision =
  | { readonly kind: "accepted"; readonly steps: readonly Step[] }
  | { readonly kind: "refused"; readonly operation: number; readonly refusal: OperationRefusal };

/** A stream as the operations so far will leave it. */
interface Preview {
  readonly id: StreamId;
  readonly contentType: string;
  readonly tail: Offset;
  readonly isClosed: boolean;
}

export interface TransactionScene extends Scene {
  readonly run: RunId;
  /** Of streams whose creation says nothing of it. */
  readonly retentionDefault?: RetentionRule | undefined;
}

export function decideOperations(
  world: World,
  operations: readonly Operation[],
  scene: TransactionScene,
): OperationsDecision {
  for (const [operation, expectation] of operations.entries()) {
    if (!isExpectation(expectation)) continue;
    const refusal = findUnmet(world, expectation);
    if (refusal !== undefined) return { kind: "refused", operation, refusal };
  }
  const decider = new Decider(world, scene);
  const steps: Step[] = [];
  for (const [operation, wanted] of operations.entries()) {
    const step = decider.decide(wanted);
    if (isRefusal(step)) return { kind: "refused", operation, refusal: step };
    steps.push(step);
  }
  return { kind: "accepted", steps };
}

function isExpectation(operation: Operation): operation is Expectation {
  return operation.kind.startsWith("expect_");
}

function isRefusal(outcome: Step | OperationRefusal): outcome is OperationRefusal {
  return !["stream", "group", "ack", "nothing"].includes(outcome.kind);
}

/** TX2 */
function findUnmet(world: World, expectation: Expectation): OperationRefusal | undefined {
  if (expectation.kind === "expect_lease") return findLostLease(world, expectation.lease);
  const { stream } = expectation;
  const state = world.streams.get(stream);
  if (expectation.kind === "expect_absent") {
    // A path that forks keep taken is not free either.
    return state === undefined ? undefined : { kind: "stream_present", stream, tail: state.tail };
  }
  if (state === undefined) return { kind: "stream_missing", stream };
  if (state.isDeleted) return { kind: "stream_gone", stream };
  const { tail } = state;
  return tail === expectation.offset ? undefined : { kind: "tail_moved", stream, tail };
}

function findLostLease(world: World, lease: LeaseClaim): OperationRefusal | undefined {
  const group = world.groups.byId.get(lease.group);
  if (group === undefined) return { kind: "group_missing", group: lease.group };
  if (!group.members.has(lease.member)) return { kind: "member_lost" };
  const cursor = findLease(group, lease.member, lease.stream, lease.token);
  return cursor === undefined ? { kind: "lease_lost", streams: [lease.stream] } : undefined;
}

class Decider {
  readonly #world: World;
  readonly #scene: TransactionScene;
  readonly #previews = new Map<StreamName, Preview>();
  /** Cursors and subscriptions that an operation has moved. Each is moved by one operation only. */
  readonly #moved = new Set<string>();
  #nextId: number;

  constructor(world: World, scene: TransactionScene) {
    this.#world = world;
    this.#scene = scene;
    this.#nextId = world.nextId;
  }

  decide(operation: Operation): Step | OperationRefusal {
    switch (operation.kind) {
      case "append":
        return this.#append(operation);
      case "close": {
        const { stream } = operation;
        const data = new Uint8Array();
        return this.#append({ kind: "append", stream, contentType: undefined, data, closes: true });
      }
      case "create":
        return this.#create(operation);
      case "commit":
        return this.#commit(operation);
      case "done":
        return this.#done(operation);
      case "ack":
        return this.#ack(operation);
      case "unfit":
        return operation.reason;
      default:
        return { kind: "nothing" };
    }
  }

  #append(operation: AppendOperation): Step | OperationRefusal {
    const { stream: name, contentType, data, closes } = operation;
    const found = this.#find(name);
    if ("kind" in found) return found;
    const { id, tail, isClosed } = found;
    if (isClosed) {
      // Closing again is not an error (A4); anything else is.
      if (data.length === 0 && closes) return { kind: "stream", changes: [], name };
      return { kind: "stream_closed", stream: name, tail };
    }
    if (contentType !== undefined && !isSameMediaType(contentType, found.contentType)) {
      return { kind: "content_type_mismatch", expected: found.contentType };
    }
    this.#previews.set(name, { ...found, tail: (tail + data.length) as Offset, isClosed: closes });
    const { atMs } = this.#scene;
    const bare = { producer: undefined, streamSeq: undefined, key: undefined };
    const change = { kind: "appended", atMs, stream: id, data, closes, ...bare } as const;
    return { kind: "stream", changes: [change], name };
  }

  #create({ command }: CreateOperation): Step | OperationRefusal {
    const { name } = command;
    const preview = this.#previews.get(name);
    const existing = this.#world.streams.get(name);
    if (preview !== undefined && existing === undefined) return this.#createAgain(command, preview);
    const id = this.#nextId as StreamId;
    const { run, atMs, retentionDefault } = this.#scene;
    const asked = { ...command, retentionDefault };
    const decision = decideCreate(existing, undefined, asked, id, run, atMs);
    if (decision.kind === "exists") return { kind: "stream", changes: [], name };
    if (decision.kind === "in_use") return { kind: "stream_gone", stream: name };
    if (decision.kind === "conflict") return { kind: "create_conflict", reason: decision.reason };
    if (decision.kind === "present") {
      return { kind: "stream_present", stream: name, tail: decision.tail };
    }
    if (decision.kind !== "created") return { kind: "create_conflict", reason: decision.kind };
    this.#nextId += 1;
    const { contentType, tail, isClosed } = decision;
    this.#previews.set(name, { id, contentType, tail, isClosed });
    return { kind: "stream", changes: decision.changes, name };
  }

  /** Repeats a creation of the same transaction. Only its content type is known here. */
  #createAgain(command: CreateCommand, preview: Preview): Step | OperationRefusal {
    const { name, contentType } = command;
    if (contentType !== undefined && !isSameMediaType(contentType, preview.contentType)) {
      return { kind: "create_conflict", reason: "content type" };
    }
    return { kind: "stream", changes: [], name };
  }

  /** TX3 */
  #find(stream: StreamName): Preview | OperationRefusal {
    const preview = this.#previews.get(stream);
    if (preview !== undefined) return preview;
    const state: StreamState | undefined = this.#world.streams.get(stream);
    if (state === undefined) return { kind: "stream_missing", stream };
    if (state.isDeleted) return { kind: "stream_gone", stream };
    const { id, contentType, tail, isClosed } = state;
    return { id, contentType, tail, isClosed };
  }

  /** TX4 */
  #commit({ lease, offset }: CommitOperation): Step | OperationRefusal {
    const group = this.#world.groups.byId.get(lease.group);
    if (group === undefined) return { kind: "group_missing", group: lease.group };
    const { stream, token, member } = lease;
    if (!this.#isFirst(`group ${lease.group} ${stream}`)) return { kind: "named_twice" };
    const commits = [{ stream, token, offset }];
    const { atMs, isBoundary } = this.#scene;
    const { streams } = this.#world;
    const decision = decideCommit(group, member, commits, streams, atMs, isBoundary);
    if (decision.kind !== "committed") return decision;
    return { kind: "group", changes: [decision.change] };
  }

  /** TX4. A job that is done already was not done by this transaction, so it counts as lost. */
  #done({ lease, offset }: DoneOperation): Step | OperationRefusal {
    const group = this.#world.groups.byId.get(lease.group);
    if (group === undefined) return { kind: "group_missing", group: lease.group };
    const { stream, token, member } = lease;
    if (!this.#isFirst(`job ${lease.group} ${stream} ${offset}`)) return { kind: "named_twice" };
    const job = { stream, offset, token };
    const decision = decideSettle(group, member, [job], [], this.#scene.atMs);
    if (decision.kind !== "settled") return decision;
    if (decision.change.done.length === 0) return { kind: "lease_lost", streams: [stream] };
    return { kind: "group", changes: [decision.change] };
  }

  /** TX5 */
  #isFirst(moved: string): boolean {
    const isFirst = !this.#moved.has(moved);
    this.#moved.add(moved);
    return isFirst;
  }

  #ack(operation: AckOperation): Step | OperationRefusal {
    const subscription = this.#world.subscriptions.byId.get(operation.subscription);
    if (subscription === undefined) return { kind: "subscription_missing" };
    const { wake, acks, isDone } = operation;
    if (!this.#isFirst(`subscription ${subscription.id}`)) return { kind: "named_twice" };
    // Several operations may begin a wake. Each gets its own id.
    const scene = { ...this.#scene, wakeId: `${this.#scene.wakeId}-${this.#moved.size}` };
    const decision = decideAck(subscription, wake, acks, isDone, scene);
    // A fenced ack may also find an ended lease. That is decided again when it is due, because a refused transaction
    // changes nothing.
    if (decision.kind === "fenced") return { kind: "subscription_fenced" };
    if (decision.kind === "invalid_ack") return decision;
    return { kind: "ack", changes: decision.changes };
  }
}
