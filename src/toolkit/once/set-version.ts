/**
 * Versions of the user's own rows, kept beside them: the rule is toolkit/rules/version.ts.
 *
 *   - the version changes in the caller's transaction, together with its row, or not at all;
 *   - of concurrent writes that expect the same version one is applied, and the others get `conflict`.
 */

import {
  applyVersion,
  decideVersion,
  NO_VERSIONS,
  type VersionDecision,
  type VersionedWrite,
  type Versions,
} from "../rules/version.ts";
import { HapaxError } from "../../base/errors.ts";
import type { Entry, Expected, Ledger, Place } from "../ledgers/ledger.ts";
import { Check } from "./check.ts";

/** A write of the thing with this scope and key. */
export interface SetVersion extends VersionedWrite {
  readonly scope: string;
  readonly key: string;
  /** The version that the writer has read; 0: it must not exist yet. */
  readonly expected: number;
  /** Unique for every write. Use the same id when you repeat a write. */
  readonly id: string;
}

/**
 * Moves a thing from the expected version to the next, in the caller's transaction: pass `ledger.in(tx)`. Write the thing
 * itself, in the same transaction, if and only if the answer is `applied`. `repeated`: this very write was applied before.
 * `conflict`: another write came first. `forgotten`: it is too long ago to decide. Throws `invalid_request`.
 *
 * ```ts
 * import { setVersion } from "hapax/ledger";
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const ledger = memoryLedger();
 * const write = { scope: "carts", key: "cart 1", expected: 0, id: "write 1" };
 * const set = (one: typeof write) => ledger.transaction((tx) => setVersion(ledger.in(tx), one));
 * const answers = [await set(write), await set(write), await set({ ...write, id: "write 2" })];
 * console.assert(answers.map(({ kind }) => kind).join() === "applied,repeated,conflict");
 * ```
 */
export async function setVersion<Tx>(
  ledger: Ledger<Tx>,
  write: SetVersion,
): Promise<VersionDecision> {
  const place = placeOf(write);
  // Outside a transaction the version would move without its thing.
  if (!ledger.isJoined)
    throw new HapaxError(
      "invalid_request",
      "pass ledger.in(tx): the version belongs to the transaction",
    );
  for (;;) {
    const entry = await ledger.entries.find(place);
    const versions = entry === undefined ? NO_VERSIONS : parse(entry);
    const decision = decideVersion(versions, write);
    if (decision.kind !== "applied") return decision;
    const written = await ledger.entries.put(place, expectedOf(entry), {
      state: "done",
      token: "next",
      attempts: 1,
      leaseMs: undefined,
      keepMs: undefined,
      fingerprint: { value: undefined },
      data: { value: encode(applyVersion(versions, write)) },
    });
    // Another write has made the entry since. The next round finds it.
    if (written !== undefined) return decision;
  }
}

function placeOf({ scope, key, id, expected }: SetVersion): Place {
  const check = new Check();
  check.name("scope", scope);
  check.name("key", key);
  check.name("id", id);
  check.whole("expected", expected, expected, 0, Number.MAX_SAFE_INTEGER - 1);
  check.end("invalid_request");
  return { kind: "version", scope, key };
}

function expectedOf(entry: Entry | undefined): Expected {
  if (entry === undefined) return { kind: "absent" };
  return { kind: "unchanged", token: entry.token, revision: entry.revision };
}

function encode({ version, ids }: Versions): Uint8Array {
  return new TextEncoder().encode(JSON.stringify([version, ...ids]));
}

function parse({ data }: Entry): Versions {
  const [version, ...ids] = JSON.parse(new TextDecoder().decode(data)) as [number, ...string[]];
  return { version, ids };
}
