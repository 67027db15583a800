/**
 * One step of an object: work that does not await, in one transaction, with the events that it emits. An emitted event, the alarm
 * that publishes it and the object's own rows are committed together, or not at all.
 */

import { HapaxError } from "../../base/errors.ts";
import type { DurableObjectLedger, ObjectStorage } from "../ledgers/durable-object.ts";
import { newOutboxEvent, type OutboxMessage } from "../outbox/adding.ts";
import type { Alarms } from "./alarms.ts";

/** The argument of work in an object. Its members are valid until the work ends. */
export interface ObjectWork<Storage> {
  /** The storage of the object, inside the transaction: use `tx.sql.exec`. */
  readonly tx: Storage;
  /** Adds an event to the outbox, in the same transaction. Returns its id. Throws `invalid_request`, and `unsupported` without `outbox`. */
  readonly emit: (message: OutboxMessage) => string;
}

export const OUTBOX_ALARM = "hapax:outbox";

export class Steps<Storage extends ObjectStorage> {
  readonly ledger: DurableObjectLedger<Storage>;
  readonly #alarms: Alarms;
  readonly #canEmit: boolean;
  readonly #nowMs: () => number;
  readonly #onFailure: (error: unknown) => void;

  constructor(
    ledger: DurableObjectLedger<Storage>,
    alarms: Alarms,
    canEmit: boolean,
    nowMs: () => number,
    onFailure: (error: unknown) => void,
  ) {
    this.ledger = ledger;
    this.#alarms = alarms;
    this.#canEmit = canEmit;
    this.#nowMs = nowMs;
    this.#onFailure = onFailure;
  }

  /** Runs the work in its turn. */
  async run<T>(work: (context: ObjectWork<Storage>) => T): Promise<T> {
    try {
      return await this.ledger.inTurnSync((tx) => work(this.#lend(tx)));
    } catch (error) {
      // What the work has set was rolled back with it.
      this.#alarms.forgetArmed();
      this.#onFailure(error);
      throw error;
    }
  }

  #lend(tx: Storage): ObjectWork<Storage> {
    return {
      tx,
      emit: (message) => {
        if (!this.#canEmit) throw new HapaxError("unsupported", "emit needs the option outbox");
        const [id = ""] = this.ledger.sync(tx).add([newOutboxEvent(message)]);
        this.#alarms.atLatest(OUTBOX_ALARM, this.#nowMs());
        return id;
      },
    };
  }
}

/** Work that returns a promise goes on outside of its transaction: refused. */
export function requireSync<T>(result: T): T {
  if (typeof (Object(result) as { readonly then?: unknown }).then !== "function") return result;
  const how = "use effect=repeatable and commit";
  throw new HapaxError("invalid_request", `the work must not be async; ${how}`);
}
