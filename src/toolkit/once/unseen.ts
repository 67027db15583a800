/** What stands for an entry that an open transaction keeps from others. */

import type { Entry } from "../ledgers/ledger.ts";

/** When to look again at an entry that an open transaction keeps locked: its holder may have lost its connection. */
export const LOCKED_MS = 1_000;

/** Stands for an entry of a transaction that is not committed yet. */
export const UNSEEN: Entry = {
  token: 0,
  revision: 0,
  state: "running",
  attempts: 0,
  leaseLeftMs: LOCKED_MS,
  keepLeftMs: undefined,
  ageMs: 0,
  fingerprint: undefined,
  data: undefined,
};
