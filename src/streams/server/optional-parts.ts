/**
 * The parts that a program can leave out. Each is a constant of names alone, so that a bundler drops it with all that it needs: no calls
 * and no spreads in here.
 */

import { DASHBOARD_ROUTES, dashboardAtFront } from "./dashboard.ts";
import { DESCRIPTION_ROUTES } from "./description.ts";
import { Faults } from "./faults.ts";
import { OBSERVATION_ROUTES } from "./inspection.ts";
import type { ServerPart } from "./server-part.ts";
import { createSubscriptions, refuseControlPath, SUBSCRIPTION_ROUTES } from "./subscriptions.ts";

/** Shows the server to a person. */
export const dashboard: ServerPart = {
  name: "dashboard",
  routes: DASHBOARD_ROUTES,
  front: dashboardAtFront,
};

/**
 * A part for `durableStreams`: the OpenAPI document at `/_hapax/openapi.json`, which describes the routes that the server has.
 *
 * ```ts
 * import { description, durableStreams } from "hapax/workers";
 *
 * export class Streams extends durableStreams({ insecurePublic: true, parts: [description] }) {}
 * ```
 */
export const description: ServerPart = { name: "description", routes: DESCRIPTION_ROUTES };

/**
 * A part for `durableStreams`: metrics as Prometheus text at `/metrics`, and what an operator looks at: one stream, one key, the
 * subscriptions, the API keys. An object has no backups, and says so.
 *
 * ```ts
 * import { durableStreams, observation } from "hapax/workers";
 *
 * export class Streams extends durableStreams({ insecurePublic: true, parts: [observation] }) {}
 * ```
 */
export const observation: ServerPart = { name: "observation", routes: OBSERVATION_ROUTES };

/**
 * A part for `durableStreams`: subscriptions, which wake workers and call webhooks when streams have records for them. Webhooks need a
 * `courier` too.
 *
 * ```ts
 * import { durableStreams, subscriptions } from "hapax/workers";
 *
 * export class Streams extends durableStreams({ insecurePublic: true, parts: [subscriptions] }) {}
 * ```
 */
export const subscriptions: ServerPart = {
  name: "subscriptions",
  routes: SUBSCRIPTION_ROUTES,
  unknown: refuseControlPath,
  createSubscriptions,
};

/**
 * A part for `durableStreams`, with the option `testFaults`: tests of clients can make the server fail.
 *
 * ```ts
 * import { durableStreams, testFaults } from "hapax/workers";
 *
 * export class Streams extends durableStreams({ insecurePublic: true, testFaults: true, parts: [testFaults] }) {}
 * ```
 */
export const testFaults: ServerPart = {
  name: "testFaults",
  routes: [],
  createFaults: (clock, random) => new Faults(clock, random),
};
