/**
 * What a program can leave out of a server, so that its bundle does not have it. Streams, forks, producers, keys, transactions and groups
 * are in every server; so are health, access rights, quotas and the audit.
 *
 *   - a server says by name what it was made without: the routes of a missing part answer `unsupported`, and never as a stream would;
 *   - `createServer` of `hapax/server` has all parts. A runtime with a small memory begins with none (`hapax/workers`).
 */

import type { Clock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";
import type { Subscriptions, SubscriptionParts } from "../engine/subscriptions.ts";
import type { ServerAnswer } from "./exchange.ts";
import type { Faults } from "./faults.ts";
import type { Route, RouteCall } from "./route.ts";

/** A part of a server. The constants of `hapax/workers` are parts; their members are not for programs. */
export interface ServerPart {
  /** What a server without it names in its refusals. */
  readonly name: PartName;
  /** What it answers, by fixed paths. */
  readonly routes: readonly Route[];
  /** The answer to paths of the part that no route takes. Undefined: the path is not of this part. */
  readonly unknown?: (path: string) => ServerAnswer | undefined;
  /** What `/` answers. Undefined: the text of every server. */
  readonly front?: (call: RouteCall) => Promise<ServerAnswer | undefined>;
  /** Makes the subscriptions of the engine. */
  readonly createSubscriptions?: (parts: Omit<SubscriptionParts, "format">) => Subscriptions;
  /** Makes the faults of a server with the option `testFaults`. */
  readonly createFaults?: (clock: Clock, random: Random) => Faults;
}

export type PartName = "dashboard" | "description" | "observation" | "subscriptions" | "testFaults";

/** The refusal of everything that needs a part which the server was made without. */
export function withoutPart(name: PartName, why = ""): HapaxError {
  return new HapaxError("unsupported", `this server was made without the part \`${name}\`${why}`);
}
