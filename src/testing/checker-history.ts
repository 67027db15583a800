/**
 * Records what the callers saw: operations with their begin and their end. A history is a list of plain events, so
 * each process can write its own part as lines of JSON.
 *
 *   - an operation ends at most once, as done, as refused, or as unknown; one without an end is unknown;
 *   - the invocation is written before `invoke` returns: a process that dies after its request has left a trace.
 */

/**
 * Offsets and tokens. Compared as numbers, or as strings by code unit. All of one stream and group must have one
 * type.
 */
export type Ordered = number | string;

/** A record that a process wants to write to a stream. */
export interface WrittenRecord {
  /** Unique in its stream. A retry has the same id. */
  readonly id: string;
  /** Records of one key stay in order: those of one process, and the outputs of a pipeline. */
  readonly key?: string | undefined;
  /** The id of the input that produced this record. */
  readonly of?: string | undefined;
}

/** Records for one stream, in order. */
export interface WrittenRecords {
  readonly stream: string;
  readonly records: readonly WrittenRecord[];
}

/** An offset that a member of a group commits under the token of its lease. */
export interface WrittenCommit {
  readonly group: string;
  readonly stream: string;
  readonly token: Ordered;
  readonly offset: Ordered;
}

/**
 * Appends to one stream. Set `producer` if the client numbers its appends. Then its records must be in the order in
 * which they were first sent, also after retries.
 */
export interface AppendCall extends WrittenRecords {
  readonly kind: "append";
  readonly producer?: string | undefined;
}

/** Appends and commits that happen together or not at all. A retry with the same `id` is the same transaction. */
export interface TransactionCall {
  readonly kind: "transaction";
  readonly id?: string | undefined;
  readonly appends: readonly WrittenRecords[];
  readonly commits?: readonly WrittenCommit[] | undefined;
  readonly producer?: string | undefined;
}

/** Commits an offset outside of a transaction. */
export interface CommitCall extends WrittenCommit {
  readonly kind: "commit";
}

/** Asks for leases of streams. */
export interface ClaimCall {
  readonly kind: "claim";
  readonly group: string;
}

/** The result of a claim. `offset` is the committed offset in the answer, if there was one. */
export interface ClaimResult {
  readonly leases: readonly {
    readonly stream: string;
    readonly token: Ordered;
    readonly offset?: Ordered | undefined;
  }[];
}

/** Reads one stream or several. A cut shows all of them, up to their tails, at one instant. */
export interface ReadCall {
  readonly kind: "read";
  readonly isCut?: boolean | undefined;
}

/** A record that a reader found in a stream. */
export interface FoundRecord {
  readonly id: string;
  readonly offset?: Ordered | undefined;
}

/** What a reader saw of one stream. */
export interface Observation {
  readonly stream: string;
  readonly records: readonly FoundRecord[];
  /**
   * Where the reader began: at the first record of the stream (the default), where the last read of the same process
   * ended, or anywhere.
   */
  readonly begins?: "start" | "continued" | "anywhere" | undefined;
  /** The reader saw everything up to the tail. Always true for a cut. */
  readonly isComplete?: boolean | undefined;
}

/** The result of a read. */
export interface ReadResult {
  readonly observed: readonly Observation[];
}

/** Every operation that a process can ask for. */
export type HistoryCall = AppendCall | TransactionCall | CommitCall | ClaimCall | ReadCall;

interface EventHead {
  /** The number of the operation, unique in its history. */
  readonly op: number;
  readonly process: string;
  /** Microseconds of a clock that all processes share. */
  readonly atUs: number;
}

/** One line of a history. */
export type HistoryEvent =
  | (EventHead & { readonly type: "invoke"; readonly call: HistoryCall })
  | (EventHead & { readonly type: "ok"; readonly result?: ClaimResult | ReadResult | undefined })
  | (EventHead & { readonly type: "fail"; readonly code: string })
  | (EventHead & { readonly type: "unknown" });

/** An operation that has begun. One of the three methods ends it. Without an end its outcome is unknown. */
export interface OpenCall<Result extends readonly unknown[]> {
  /** The operation was done. */
  ok(...result: Result): void;
  /** The operation was refused, and will never be done. If in doubt, call `unknown`. */
  fail(code: string): void;
  /** There was no answer. The operation may have been done, or may still be. */
  unknown(): void;
}

/** Records operations. */
export interface History {
  /** All events so far, in order. Empty if the options say `isKept: false`. */
  readonly events: readonly HistoryEvent[];
  /** Records that `process` asks for something. Call it before the request. */
  invoke(
    call: { readonly process: string } & (AppendCall | TransactionCall | CommitCall),
  ): OpenCall<[]>;
  invoke(call: { readonly process: string } & ClaimCall): OpenCall<[ClaimResult]>;
  invoke(call: { readonly process: string } & ReadCall): OpenCall<[ReadResult]>;
}

/** How a history is written. */
export interface HistoryOptions {
  /** Receives each event as a line of JSON. It must have written the line when it returns. */
  readonly write?: ((line: string) => void) | undefined;
  /** Whether `events` keeps all events. Default: true. */
  readonly isKept?: boolean | undefined;
  /** A clock in microseconds that never goes back. Default: one that all processes of this machine share. */
  readonly nowUs?: (() => number) | undefined;
}

/**
 * Creates a history.
 *
 * ```ts
 * import { checkHistory, createHistory } from "hapax/testing";
 *
 * const history = createHistory();
 * const call = history.invoke({
 *   process: "writer",
 *   kind: "append",
 *   stream: "orders",
 *   records: [{ id: "a" }, { id: "b" }],
 * });
 * call.ok(); // Here the append would be sent, and its answer would decide.
 * const verdict = checkHistory(history.events, { streams: { orders: [{ id: "a" }] } });
 * console.assert(!verdict.ok && verdict.problems[0]?.rule === "lost");
 * ```
 */
export function createHistory(options: HistoryOptions = {}): History {
  const { write, isKept = true, nowUs = sharedNowUs } = options;
  const events: HistoryEvent[] = [];
  let operations = 0;

  function add(event: HistoryEvent): void {
    write?.(`${JSON.stringify(event)}\n`);
    if (isKept) events.push(event);
  }

  return {
    events,
    invoke({ process, ...call }: { readonly process: string } & HistoryCall) {
      const op = operations;
      operations += 1;
      let isOpen = true;
      const head = (): EventHead => {
        if (!isOpen) throw new Error(`operation ${op} of ${process} has ended already`);
        isOpen = false;
        return { op, process, atUs: nowUs() };
      };
      add({ type: "invoke", op, process, atUs: nowUs(), call });
      return {
        ok: (result?: ClaimResult | ReadResult) => add({ type: "ok", ...head(), result }),
        fail: (code: string) => add({ type: "fail", ...head(), code }),
        unknown: () => add({ type: "unknown", ...head() }),
      };
    },
  };
}

/** The monotonic clock of the machine: its zero is the same for all processes. */
function sharedNowUs(): number {
  return Number(process.hrtime.bigint() / 1000n);
}
