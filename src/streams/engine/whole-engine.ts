/** The wings of an engine, and the engine with all of them but subscriptions, which need parts of the server. */

import { Compactions } from "./compactions.ts";
import { Engine, type EngineParts } from "./engine.ts";
import { Groups } from "./groups.ts";
import { Holdings } from "./holdings.ts";
import { Jobs } from "./jobs.ts";
import { EngineMeter } from "./meter.ts";
import { Registry } from "./registry.ts";
import { Transactions } from "./transactions.ts";
import { Trims } from "./trims.ts";
import type { Wings } from "./wings.ts";

export const ACCESS_WINGS: Wings = {
  createHoldings: (world, slices) => new Holdings(world, slices),
};
export const GROUP_WINGS: Wings = {
  createGroups: (parts) => new Groups(parts),
  createJobs: (parts) => new Jobs(parts),
};
export const TRIM_WINGS: Wings = {
  createTrims: (writer) => new Trims(writer),
  createCompactions: (parts) => new Compactions(parts),
};
export const METER_WINGS: Wings = {
  createMeter: () => new EngineMeter(),
};
export const REGISTRY_WINGS: Wings = {
  createRegistry: (world, places) => new Registry(world, places),
};
export const TRANSACTION_WINGS: Wings = {
  createTransactions: (parts) => new Transactions(parts),
};

export class WholeEngine extends Engine {
  constructor(parts: EngineParts) {
    super({
      ...ACCESS_WINGS,
      ...GROUP_WINGS,
      ...METER_WINGS,
      ...REGISTRY_WINGS,
      ...TRIM_WINGS,
      ...TRANSACTION_WINGS,
      ...parts,
    });
  }
}
