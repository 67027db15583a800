/**
 * What happened, as those saw it who asked for it: operations with their begin and their end. A history is a
 * list of plain events, so that each process can write its own part as lines of JSON.
 *
 *   LH1  an operation ends at most once, as done, as refused, or as unknown; one without an end is unknown;
 *   LH2  the invocation is written before it returns: whoever asks afterwards, and dies, has left a trace.
 */

/** Offsets and tokens: compared as numbers, or as strings by code unit. All of one place have one type. */
export type Ordered = number | string;

/** A record that somebody wants to have in a stream. */
export interface WrittenRecord {
  /** Unique in its stream. A retry has the same id. */
  readonly id: string;
  /** Records of one key stay in order: those of one process, and the outputs of a pipeline. */
  readonly key?: string | undefined;
  /** The id of the input that this record was made of. */
  readonly of?: string | undefined;
}

/** Records for one stream, in their order. */
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
 * Appends to one stream. Give a `producer` if it numbers what it sends: then its records are in the order in
 * which they were first sent, whatever is sent again.
 */
export interface AppendCall extends WrittenRecords {
  readonly kind: "append";
  readonly producer?: string | undefined;
}

/**
 * Appends and commits that happen together or not at all. A retry under the same `id` is the same
 * transaction.
 */
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

/** What a claim was given. `offset` is the committed one that it was told, if it was. */
export interface ClaimResult {
  readonly leases: readonly {
    readonly stream: string;
    readonly token: Ordered;
    readonly offset?: Ordered | undefined;
  }[];
}

/** Reads one stream or several. A cut shows all of them, up to their tails, as they were at one instant. */
export interface ReadCall {
  readonly kind: "read";
  readonly isCut?: boolean | undefined;
}

/** A record that somebody found in a stream. */
export interface FoundRecord {
  readonly id: string;
  readonly offset?: Ordered | undefined;
}

/** What a reader saw of one stream. */
export interface Observation {
  readonly stream: string;
  readonly records: readonly FoundRecord[];
  /**
   * Where the reader began: at the first record of the stream (the default), where the last read of the same
   * process ended, or anywhere.
   */
  readonly begins?: "start" | "continued" | "anywhere" | undefined;
  /** The reader saw everything up to the tail. Of a cut this is always so. */
  readonly isComplete?: boolean | undefined;
}

/** What a read gave. */
export interface ReadResult {
  readonly observed: readonly Observation[];
}

/** Everything that can be asked for. */
export type Call = AppendCall | TransactionCall | CommitCall | ClaimCall | ReadCall;

interface EventHead {
  /** The number of the operation, unique in its history. */
  readonly op: number;
  readonly process: string;
  /** Microseconds of a clock that all processes share. */
  readonly atUs: number;
}

/** One line of a history. */
export type HistoryEvent =
  | (EventHead & { readonly type: "invoke"; readonly call: Call })
  | (EventHead & { readonly type: "ok"; readonly result?: ClaimResult | ReadResult | undefined })
  | (EventHead & { readonly type: "fail"; readonly code: string })
  | (EventHead & { readonly type: "unknown" });

/** An operation that has begun. One of the three ends it; without one its outcome is unknown. */
export interface OpenCall<Result extends readonly unknown[]> {
  /** It is done. */
  ok(...result: Result): void;
  /** It was refused, and will never be done. If in doubt it is `unknown`. */
  fail(code: string): void;
  /** Nobody told. It may have been done, or may still be. */
  unknown(): void;
}

/** Writes down what happens. */
export interface History {
  /** Everything so far, in its order. Empty if the settings say `isKept: false`. */
  readonly events: readonly HistoryEvent[];
  /** Writes down that `process` asks for something, before it does. */
  invoke(
    call: { readonly process: string } & (AppendCall | TransactionCall | CommitCall),
  ): OpenCall<[]>;
  invoke(call: { readonly process: string } & ClaimCall): OpenCall<[ClaimResult]>;
  invoke(call: { readonly process: string } & ReadCall): OpenCall<[ReadResult]>;
}

/** How a history is written. */
export interface HistorySettings {
  /** Gets each event as a line of JSON. Must have written it when it returns. */
  readonly write?: ((line: string) => void) | undefined;
  /** Whether `events` keeps them. Default: true. */
  readonly isKept?: boolean | undefined;
  /** A clock in microseconds that never goes back. Default: one that all processes of this machine share. */
  readonly nowUs?: (() => number) | undefined;
}

/**
 * Begins a history.
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
export function createHistory(settings: HistorySettings = {}): History {
  const { write, isKept = true, nowUs = sharedNowUs } = settings;
  const events: HistoryEvent[] = [];
  let operations = 0;

  function add(event: HistoryEvent): void {
    write?.(`${JSON.stringify(event)}\n`);
    if (isKept) events.push(event);
  }

  return {
    events,
    invoke({ process, ...call }: { readonly process: string } & Call) {
      const op = operations;
      operations += 1;
      let isOpen = true;
      const head = (): EventHead => {
        if (!isOpen) throw new Error(`LH1 operation ${op} of ${process} has ended already`);
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

/** The steady clock of the machine: its zero is the same for all processes. */
function sharedNowUs(): number {
  return Number(process.hrtime.bigint() / 1000n);
}
