/**
 * What an engine has beside streams. It comes from outside, so that a program bundles the wings that it names, and no others.
 *
 *   - what needs a wing that is not there is refused by the name of the part that brings it;
 *   - an engine does not open a world that has something for a wing that is not there: nothing would follow it.
 */

import { HapaxError } from "../../base/errors.ts";
import type { World } from "../core/world.ts";
import type { RegistryPlaces } from "../core/registry.ts";
import type { Compactions, CompactionsParts } from "./compactions.ts";
import type { GroupParts, Groups } from "./groups.ts";
import type { Holdings } from "./holdings.ts";
import type { JobParts, Jobs } from "./jobs.ts";
import type { EngineMeter } from "./meter.ts";
import type { Registry } from "./registry.ts";
import type { SubscriptionParts, Subscriptions } from "./subscriptions.ts";
import type { TransactionParts, Transactions } from "./transactions.ts";
import type { Slices } from "./turn-budget.ts";
import type { Trims } from "./trims.ts";
import type { Writer } from "./writer.ts";

export type WingName =
  | "access"
  | "groups"
  | "observation"
  | "registries"
  | "retention"
  | "subscriptions"
  | "transactions";

/** Each makes one wing. Default: the engine has none. */
export interface Wings {
  /** Counts what namespaces hold. */
  readonly createHoldings?: (world: World, slices: () => Slices) => Holdings;
  readonly createGroups?: (parts: GroupParts) => Groups;
  /** They come with groups. */
  readonly createJobs?: (parts: JobParts) => Jobs;
  readonly createTrims?: (writer: Writer) => Trims;
  /** They come with trims, which make them smaller. */
  readonly createCompactions?: (parts: CompactionsParts) => Compactions;
  /** Counts what the engine does. */
  readonly createMeter?: () => EngineMeter;
  readonly createRegistry?: (world: World, places: RegistryPlaces) => Registry;
  readonly createTransactions?: (parts: TransactionParts) => Transactions;
  readonly createSubscriptions?:
    | ((
        parts: Pick<SubscriptionParts, "writer" | "boundaries" | "random">,
      ) => Subscriptions | undefined)
    | undefined;
}

/** The refusal of everything that needs a part which the server was made without. */
export function withoutPart(name: string, why = ""): HapaxError {
  return new HapaxError("unsupported", `this server was made without the part \`${name}\`${why}`);
}

/** Returns the wing. Throws the refusal if it is not there. */
export function wingOf<Wing>(wing: Wing | undefined, name: WingName): Wing {
  if (wing === undefined) throw withoutPart(name);
  return wing;
}

/** Throws if the world has something for a wing that is not there. */
export function checkWings(world: World, wings: Wings): void {
  const refuse = (name: WingName, what: string): never => {
    throw withoutPart(name, `; the store has ${what}`);
  };
  const { createGroups, createSubscriptions, createTrims } = wings;
  if (createGroups === undefined && world.groups.byId.size > 0) refuse("groups", "groups");
  // Wakes that are due would never come.
  if (createSubscriptions === undefined && world.subscriptions.byId.size > 0)
    refuse("subscriptions", "subscriptions");
  if (createTrims !== undefined) return;
  for (const { retained, compaction } of world.byId.values()) {
    if (retained?.rule !== undefined) refuse("retention", "streams with a rule of retention");
    if (compaction !== undefined) refuse("retention", "changelogs");
  }
}
