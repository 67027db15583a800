/**
 * The parts that a program can leave out. Each is a constant of names alone, so that a bundler drops it with all that it needs: no calls
 * and no spreads in here.
 */

import { GROUP_RULES, SUBSCRIPTION_RULES } from "../core/whole-books.ts";
import {
  ACCESS_WINGS,
  GROUP_WINGS,
  METER_WINGS,
  REGISTRY_WINGS,
  TRANSACTION_WINGS,
  TRIM_WINGS,
} from "../engine/whole-engine.ts";
import { recordKey } from "../../protocol/compaction.ts";
import { jsonRecordEndAfter } from "../../protocol/json.ts";
import { RULE_HEADERS } from "../../protocol/rules.ts";
import { DASHBOARD_ROUTES, dashboardAtFront } from "./dashboard.ts";
import { checkQuotas } from "../access/check-identity.ts";
import { BackupBook } from "./backup-book.ts";
import { Decoding } from "./decoding.ts";
import { DESCRIPTION_ROUTES } from "./description.ts";
import { Faults } from "./faults.ts";
import { FOLLOW_ROUTES } from "./follow-all.ts";
import { createGate } from "./gate.ts";
import { GROUP_ROUTES } from "./groups.ts";
import { OBSERVATION_ROUTES } from "./inspection.ts";
import { JOB_ROUTES } from "./jobs.ts";
import { actKeyed } from "./keyed-acts.ts";
import { QuotaBook } from "./quotas.ts";
import { listReadable } from "./readable-streams.ts";
import { RETENTION_ROUTES } from "./retention.ts";
import type { ServerPart } from "./server-part.ts";
import { createSubscriptions, refuseControlPath, SUBSCRIPTION_ROUTES } from "./subscriptions.ts";
import { TRANSACTION_ROUTES } from "./transactions.ts";
import { createWatch } from "./watch.ts";

/**
 * A part for `durableStreams`, with the option `authorize`: identities, what they may do, and their quotas.
 *
 * ```ts
 * import { access, durableStreams } from "hapax/workers";
 * import { jwtAuthorize } from "hapax/server";
 *
 * const options = () => ({
 *   authorize: jwtAuthorize({ jwks: "https://id.example.com/keys", issuer: "https://id.example.com/", audience: "streams" }),
 *   parts: [access],
 * });
 * export class Streams extends durableStreams(options) {}
 * ```
 */
export const access: ServerPart = {
  name: "access",
  routes: [],
  wings: ACCESS_WINGS,
  access: {
    createGate,
    createQuotas: (clock, holdings) => new QuotaBook(clock, holdings),
    checkQuotas,
    listReadable,
  },
};

/** Shows the server to a person. */
export const dashboard: ServerPart = {
  name: "dashboard",
  routes: [DASHBOARD_ROUTES],
  front: dashboardAtFront,
};

/** Several streams over one connection. */
export const followAll: ServerPart = { name: "followAll", routes: [FOLLOW_ROUTES] };

/** Decodes compressed bodies with what the runtime has for that. */
export const compression: ServerPart = {
  name: "compression",
  routes: [],
  createDecoding: (decompress) => new Decoding(decompress),
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
export const description: ServerPart = { name: "description", routes: [DESCRIPTION_ROUTES] };

/**
 * A part for `durableStreams`, with the options `log`, `onAudit` and `tracer`: an entry for each request, the audit, and spans.
 *
 * ```ts
 * import { durableStreams, logs } from "hapax/workers";
 *
 * const log = (entry: object) => console.log(JSON.stringify(entry));
 * export class Streams extends durableStreams({
 *   insecurePublic: true,
 *   parts: [logs],
 *   log,
 *   logRequests: "errors",
 * }) {}
 * ```
 */
export const logs: ServerPart = { name: "logs", routes: [], createWatch };

/**
 * A part for `durableStreams`: metrics as Prometheus text at `/metrics`, and what an operator looks at: one stream, one key, the
 * subscriptions, the API keys. An object has no backups: requests for one are refused with `unsupported`.
 *
 * ```ts
 * import { durableStreams, observation } from "hapax/workers";
 *
 * export class Streams extends durableStreams({ insecurePublic: true, parts: [observation] }) {}
 * ```
 */
export const observation: ServerPart = {
  name: "observation",
  routes: [OBSERVATION_ROUTES],
  wings: METER_WINGS,
  createBackups: (clock) => new BackupBook(clock),
};

/**
 * A part for `durableStreams`: groups, whose workers share the streams of an object, and jobs.
 *
 * ```ts
 * import { durableStreams, groups } from "hapax/workers";
 *
 * export class Streams extends durableStreams({ insecurePublic: true, parts: [groups] }) {}
 * ```
 */
export const groups: ServerPart = {
  name: "groups",
  routes: [GROUP_ROUTES, JOB_ROUTES],
  books: { groups: GROUP_RULES },
  wings: GROUP_WINGS,
};

/**
 * A part for `durableStreams`: retention, by rules of streams and by cuts, and changelogs.
 *
 * ```ts
 * import { durableStreams, retention } from "hapax/workers";
 *
 * export class Streams extends durableStreams({ insecurePublic: true, parts: [retention] }) {}
 * ```
 */
export const retention: ServerPart = {
  name: "retention",
  routes: [RETENTION_ROUTES],
  wings: TRIM_WINGS,
  records: { endAfter: jsonRecordEndAfter, keyOf: recordKey },
  rules: RULE_HEADERS,
};

/**
 * A part for `durableStreams`, with the option `registry`: events of streams that are created, closed or deleted.
 *
 * ```ts
 * import { durableStreams, registries } from "hapax/workers";
 *
 * export class Streams extends durableStreams({ insecurePublic: true, registry: true, parts: [registries] }) {}
 * ```
 */
export const registries: ServerPart = { name: "registries", routes: [], wings: REGISTRY_WINGS };

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
  routes: [SUBSCRIPTION_ROUTES],
  unknown: refuseControlPath,
  books: { subscriptions: SUBSCRIPTION_RULES },
  createSubscriptions,
};

/**
 * A part for `durableStreams`: transactions over the streams of an object, and idempotency keys of requests
 * that delete or reset.
 *
 * ```ts
 * import { durableStreams, transactions } from "hapax/workers";
 *
 * export class Streams extends durableStreams({ insecurePublic: true, parts: [transactions] }) {}
 * ```
 */
export const transactions: ServerPart = {
  name: "transactions",
  routes: [TRANSACTION_ROUTES],
  wings: TRANSACTION_WINGS,
  actKeyed,
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
