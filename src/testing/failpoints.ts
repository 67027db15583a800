/** The names of all failpoints, and the hook for them. */

export { setFailpoint } from "../base/failpoint.ts";

/**
 * The failpoints of the toolkit: steps between which a crash matters, in the order in which the code reaches them. The hook of
 * `setFailpoint` is called with these names.
 *
 * ```ts
 * import { GLOBAL, processOnce } from "hapax/ledger";
 * import { memoryLedger } from "hapax/ledgers/memory";
 * import { FAILPOINTS, setFailpoint } from "hapax/testing";
 *
 * const reached: string[] = [];
 * setFailpoint((name) => void reached.push(name));
 * await processOnce(memoryLedger(), { scope: GLOBAL, key: "order 17" }, () => "paid");
 * setFailpoint(undefined);
 * console.assert(reached.join() === FAILPOINTS.filter((name) => name.startsWith("once.")).join());
 * ```
 */
export const FAILPOINTS = [
  /** The claim is committed. */
  "once.claimed",
  /** The work begins. */
  "once.began",
  /** The work has ended, and nothing is recorded. */
  "once.worked",
  /** The end is recorded, and not committed. */
  "once.completed",
  /** The end is committed, and the caller does not know yet. */
  "once.committed",
  "inbox.began",
  "inbox.worked",
  "inbox.committed",
  "lease.acquired",
  /** The token is the newest, and nothing is committed. */
  "lease.checked",
  /** The claim of a request is committed, and the handler has not begun. */
  "http.claimed",
  /** A phase is committed, and the handler does not know yet. */
  "http.phase.done",
  /** The handler has answered, and nothing of it is recorded. */
  "http.worked",
  /** The answer is recorded, and not committed. */
  "http.completed",
  /** The answer is committed, and nothing has been sent. */
  "http.committed",
  /** A saga is stored, and nothing of it has begun. */
  "saga.started",
  /** Another process holds the saga now. */
  "saga.claimed",
  /** The transaction of a step, or of its undo, has begun. */
  "saga.began",
  /** Its writes are done, and it is not recorded. */
  "saga.worked",
  /** It is recorded, and not committed. */
  "saga.checkpointed",
  /** It is committed, and its process does not know yet. */
  "saga.committed",
  /** A call is written down, and not sent. */
  "saga.intended",
  /** Its answer has come, and is not recorded. */
  "saga.called",
  /** It is recorded. */
  "saga.recorded",
  /** The other side has said whether a call has happened, and that is not recorded. */
  "saga.asked",
  /** The same of an undo. */
  "saga.undo.asked",
  /** The key of a call is kept, and nothing was sent. */
  "fetch.persisted",
  /** A final answer has arrived, and the caller does not know yet. */
  "fetch.answered",
  /** An event is added, and its transaction is not committed. */
  "outbox.added",
  /** A relay has written down what it is about to publish. */
  "outbox.planned",
  /** The publisher has answered, and the relay has not written it down. */
  "outbox.published",
  /** The outcome is written down. */
  "outbox.settled",
  /** An event of a Durable Object has come, and nothing of it is written. */
  "object.began",
  /** Its claim is committed, and its work, which awaits, has not begun. */
  "object.claimed",
  /** The work has ended, and nothing of it is recorded. */
  "object.worked",
  /** The result of work that awaits is recorded. */
  "object.completed",
  /** Work that does not await is committed, and the caller does not know yet. */
  "object.committed",
  /** A message of a source has arrived at an object, and its number is not kept. */
  "sequence.began",
  /** Its number is kept, and it is not acknowledged. */
  "sequence.committed",
  /** Events for another object have their numbers, and are not sent. */
  "delivery.numbered",
  /** They have arrived at the other object, and nothing of them is written. */
  "delivery.began",
  /** They are committed there, and the sender does not know yet. */
  "delivery.committed",
  /** The other object has answered, and the sender has not written it down. */
  "delivery.answered",
  /** The segment of the writer before is sealed. */
  "window.sealed",
  /** The writer has begun a segment of its own, and has not read the rest of the log. */
  "window.claimed",
  /** A batch has its place, and nothing was sent. */
  "window.placed",
  /** A batch is stored, and no caller knows it yet. */
  "window.stored",
  /** A segment is full and sealed, and the next one has not begun. */
  "window.rolled",
  /** A snapshot is written, and older ones are still there. */
  "window.snapshot",
  "window.pruned",
  /** A segment is marked as removed, and its entries are still there. */
  "window.gone",
  /** An object is about to be sent to a store. */
  "window.s3.sending",
  /** The store has answered, and the window does not know it yet. */
  "window.s3.answered",
  /** A file is on the disk, and has no name. */
  "window.file.written",
  /** A file has its name, and the folder is not synced. */
  "window.file.named",
] as const;
