/**
 * Versions of the user's own rows, kept beside them: the rule is toolkit/rules/version.ts.
 *
 *   - the version changes in the caller's transaction, together with its row, or not at all; on a ledger without transactions
 *     it changes alone, and the thing is elsewhere;
 *   - of concurrent writes that expect the same version one is applied, and the others get `conflict`.
 */

import {
  applyVersion,
  decideVersion,
  NO_VERSIONS,
  type VersionedWrite,
  type Versions,
} from "../rules/version.ts";
import type { Entry, Expected, Ledger, Place } from "../ledgers/ledger.ts";
import type { ScopedKey } from "../rules/scoped-key.ts";
import { Check, requireJoined } from "./check.ts";

/**
 * Raises the version of your data by one, if it is the expected one, in your transaction: pass `ledger.in(tx)`. Write the
 * data itself, in the same transaction, if and only if the result is `applied`. `duplicate`: the write with this id was
 * applied before. `conflict`: another write came first. `forgotten`: too many writes came since to decide. Throws
 * `invalid_request`.
 *
 * On a ledger without transactions, pass the ledger itself, and store the version with the data: for `applied` and for
 * `duplicate`, write the data if its stored version is less than the returned one. The first attempt may have crashed
 * between the two.
 *
 * ```ts
 * import { setVersion } from "hapax/ledger";
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const ledger = memoryLedger();
 * const cart = { scope: "carts", key: "cart 1" };
 * const set = (expected: number, id: string) =>
 *   ledger.transaction((tx) => setVersion(ledger.in(tx), cart, { expected, id }));
 * const answers = [await set(0, "write 1"), await set(0, "write 1"), await set(0, "write 2")];
 * console.assert(answers.map(({ kind }) => kind).join() === "applied,duplicate,conflict");
 * ```
 */
export async function setVersion<Tx>(
  ledger: Ledger<Tx>,
  identity: ScopedKey,
  write: VersionedWrite,
): Promise<{
  readonly kind: "applied" | "duplicate" | "conflict" | "forgotten";
  /** The version after the write; the present version if nothing was written. */
  readonly version: number;
}> {
  const place = placeOf(identity, write);
  // Outside a transaction the version would move without its thing. A ledger without transactions has only the version.
  if (ledger.supports.transactions) requireJoined(ledger, "the version");
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

function placeOf(identity: ScopedKey, { id, expected }: VersionedWrite): Place {
  const check = new Check();
  const place = { kind: "version", ...check.identity(identity) };
  check.name("id", id);
  check.whole("expected", expected, expected, 0, Number.MAX_SAFE_INTEGER - 1);
  check.end("invalid_request");
  return place;
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
