/**
 * What a relay sends, under which number, and what becomes of events that could not be published.
 *
 *   OE1  a number that was sent belongs to its content for ever: what is left of a batch goes under a new one;
 *   OE2  a number follows the one before it only if that was published as a whole; otherwise a new epoch begins;
 *   OE3  an event goes after all that are before it with its key: what comes behind a failure waits behind it;
 *   OE4  a failure concerns its key alone: all others of the batch go on;
 *   OE5  a pause doubles with every failure, with jitter, up to a maximum; after so many attempts an event is dead.
 *
 * Content is a stretch of the log or a list of held events, less what is marked. Pure.
 */

/** The number that a batch is published under. The next one to use, or the one of the intent. */
export interface BatchNumber {
  readonly epoch: number;
  readonly sequence: number;
}

/** Why an event could not be published. */
export interface Failure {
  readonly fingerprint: string;
  readonly message: string;
}

/**
 * What became of one event of an intent, by its place; without a mark it is still to be sent. `gone`: an operator has deleted
 * its row.
 */
export type Mark =
  | { readonly at: number; readonly kind: "published" }
  | { readonly at: number; readonly kind: "gone" }
  | { readonly at: number; readonly kind: "blocked" }
  | {
      readonly at: number;
      readonly kind: "failed";
      readonly failure: Failure;
      readonly isFinal: boolean;
    };

/** The events that an intent is about. Both are read again as they were; the ids tell what is gone since. */
export type Subject =
  | {
      readonly kind: "span";
      readonly from: string;
      readonly to: string;
      readonly ids: readonly string[];
    }
  | { readonly kind: "held"; readonly ids: readonly string[] };

/** What a relay is about to publish. Kept before anything is sent. */
export interface Intent {
  readonly subject: Subject;
  readonly marks: readonly Mark[];
  /** At most so many at once; undefined: all. */
  readonly takeMax: number | undefined;
  /** How many the batch under the present number has, if not all that may go: no more fit. */
  readonly sent?: number | undefined;
  /** The batch was refused, and is being cancelled, because an attempt may still be on its way. */
  readonly isCancelling: boolean;
}

/** What a relay keeps between two steps. */
export interface RelayState extends BatchNumber {
  /** Part of every number: a relay that is made anew under an old name uses none of its numbers again. */
  readonly life: string | undefined;
  /** Behind the last event that was dealt with. */
  readonly position: string | undefined;
  readonly intent: Intent | undefined;
}

/** What a publisher says of one event. `skipped`: it was not tried, or certainly not published, for no fault of its own. */
export type Outcome =
  | { readonly kind: "published" }
  | { readonly kind: "skipped" }
  | { readonly kind: "failed"; readonly failure: Failure; readonly isFinal: boolean };

/** What is done with failures. */
export interface RetryPolicy {
  readonly minMs: number;
  readonly maxMs: number;
  readonly attemptsMax: number;
  /** Whether later events of a key wait for an operator when one is dead. */
  readonly afterDead: "block" | "continue";
}

/** An event as far as it matters here. */
export interface KeyedEvent {
  readonly key: string | undefined;
  /** How often it was tried before. */
  readonly attempts: number;
}

/** OE3: events of keys that wait already are not sent. */
export function beginIntent(
  subject: Subject,
  events: readonly KeyedEvent[],
  isWaiting: (key: string) => boolean,
): Intent {
  const marks: Mark[] = [];
  for (const [at, { key }] of events.entries()) {
    if (key !== undefined && isWaiting(key)) marks.push({ at, kind: "blocked" });
  }
  return { subject, marks, takeMax: undefined, isCancelling: false };
}

/** The places of the events that go next, in their order. */
export function selectEvents(
  { marks, takeMax, sent }: Pick<Intent, "marks" | "takeMax" | "sent">,
  count: number,
): readonly number[] {
  const marked = new Set(marks.map(({ at }) => at));
  const left: number[] = [];
  const max = sent ?? takeMax ?? count;
  for (let at = 0; at < count && left.length < max; at += 1) {
    if (!marked.has(at)) left.push(at);
  }
  return left;
}

/** OE1: the places of these events are theirs, and what is left goes on without them. */
export function markGone(intent: Intent, gone: readonly number[]): Intent {
  const marks = new Map(intent.marks.map((mark) => [mark.at, mark]));
  for (const at of gone) if (!marks.has(at)) marks.set(at, { at, kind: "gone" });
  return { ...intent, marks: inOrder(marks) };
}

/** An intent after one batch, and the number for what comes next. */
export interface Round extends BatchNumber {
  readonly intent: Intent;
  /** Whether anything was published or has failed. */
  readonly hasProgressed: boolean;
}

/** OE1 to OE4. `sent` are the places that the batch had, `outcomes` what was said of them. */
export function applyOutcomes(
  number: BatchNumber,
  intent: Intent,
  events: readonly KeyedEvent[],
  sent: readonly number[],
  outcomes: readonly Outcome[],
  policy: RetryPolicy,
): Round {
  const marks = new Map(intent.marks.map((mark) => [mark.at, mark]));
  let isWhole = true;
  for (const [index, at] of sent.entries()) {
    const outcome = outcomes[index] ?? { kind: "skipped" };
    isWhole &&= outcome.kind === "published";
    if (outcome.kind !== "skipped") marks.set(at, { at, ...outcome });
  }
  const hasProgressed = marks.size > intent.marks.length;
  block(marks, events, policy);
  // A batch that was refused as a whole, and nobody says for which event: halves find it.
  const takeMax = hasProgressed ? intent.takeMax : Math.max(1, Math.ceil(sent.length / 2));
  return {
    intent: { subject: intent.subject, marks: inOrder(marks), takeMax, isCancelling: false },
    hasProgressed,
    ...nextNumber(number, isWhole),
  };
}

/** OE2 */
export function nextNumber({ epoch, sequence }: BatchNumber, isWhole: boolean): BatchNumber {
  return isWhole ? { epoch, sequence: sequence + 1 } : { epoch: epoch + 1, sequence: 0 };
}

/** OE3: what is behind a failure, and was not published, waits. */
function block(marks: Map<number, Mark>, events: readonly KeyedEvent[], policy: RetryPolicy): void {
  const waiting = new Set<string>();
  for (const [at, event] of events.entries()) {
    const { key } = event;
    if (key === undefined) continue;
    const mark = marks.get(at);
    if (mark?.kind === "failed") {
      if (blocksKey(event, mark.isFinal, policy)) waiting.add(key);
    } else if (mark === undefined && waiting.has(key)) marks.set(at, { at, kind: "blocked" });
  }
}

function blocksKey(event: KeyedEvent, isFinal: boolean, policy: RetryPolicy): boolean {
  return policy.afterDead === "block" || !isDead(event.attempts + 1, isFinal, policy);
}

function isDead(attempts: number, isFinal: boolean, { attemptsMax }: RetryPolicy): boolean {
  return isFinal || attempts >= attemptsMax;
}

function inOrder(marks: ReadonlyMap<number, Mark>): readonly Mark[] {
  return [...marks.values()].toSorted((one, other) => one.at - other.at);
}

/** What becomes of an event that has failed once more. */
export interface FailedEvent {
  readonly state: "waiting" | "dead";
  readonly attempts: number;
  readonly dueInMs: number;
}

/** OE5. `unit` is a random number in [0, 1). */
export function decideFailed(
  attemptsBefore: number,
  isFinal: boolean,
  policy: RetryPolicy,
  unit: number,
): FailedEvent {
  const attempts = attemptsBefore + 1;
  if (isDead(attempts, isFinal, policy)) return { state: "dead", attempts, dueInMs: 0 };
  return { state: "waiting", attempts, dueInMs: backoffMs(attempts, policy, unit) };
}

/** OE5: half of the ceiling, and a random half. */
export function backoffMs(
  failures: number,
  { minMs, maxMs }: Pick<RetryPolicy, "minMs" | "maxMs">,
  unit: number,
): number {
  const ceilingMs = Math.min(maxMs, minMs * 2 ** Math.min(failures - 1, 30));
  return Math.round(ceilingMs * (0.5 + unit / 2));
}

/** OE3: the first event of every key, and every one without a key. */
export function headsOf<Event extends { readonly key: string | undefined }>(
  events: readonly Event[],
): readonly Event[] {
  const seen = new Set<string>();
  return events.filter(({ key }) => {
    if (key === undefined) return true;
    if (seen.has(key)) return false;
    seen.add(key);
    return true;
  });
}

/** By it equal failures are found together: numbers and ids in the message do not matter. */
export function fingerprintFailure(name: string, message: string): string {
  // Cut first: the search takes the square of the length for some texts, as `a-a-a-…`.
  const text = message.slice(0, 1000).replace(/\b[0-9a-f-]*[0-9][0-9a-f-]*\b/gi, "#");
  return digest(`${name}: ${text}`);
}

/** FNV-1a, twice with other beginnings: 64 bits. It tells failures apart, and protects nothing. */
function digest(text: string): string {
  let [one, other] = [0x811c9dc5, 0x1b873593];
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    one = Math.imul(one ^ unit, 0x01000193);
    other = Math.imul(other ^ unit, 0x85ebca6b);
    other ^= other >>> 13;
  }
  return [one, other].map((half) => (half >>> 0).toString(16).padStart(8, "0")).join("");
}
