/**
 * The planted faults: each breaks one guarantee on purpose, and names the test that must fail for
 * it. `npm run test:faults` runs them all; a fault that no test catches is a guarantee that is not
 * tested.
 *
 *   find      occurs exactly once in `file`;
 *   replace   takes its place and still compiles, so that only the behaviour is wrong;
 *   caughtBy  a test that passes without the fault, by its file and its whole title.
 */
import { accessFaults } from "./access.js";
import { actFaults } from "./acts.js";
import { apiKeyFaults } from "./api-keys.js";
import { chaosFaults } from "./chaos.js";
import { clientReadFaults } from "./client-reads.js";
import { clientTokenFaults } from "./client-tokens.js";
import { clientWriteFaults } from "./client-writes.js";
import { ecosystemFaults } from "./ecosystem.js";
import { errorFaults } from "./errors.js";
import { directoryFaults } from "./directories.js";
import { doorFaults } from "./doors.js";
import { namespaceFaults } from "./namespaces.js";
import { journalFaults } from "./journal.js";
import { keyFaults } from "./keys.js";
import { laneFaults } from "./lane.js";
import { callerFaults } from "./callers.js";
import { configurationFaults } from "./configuration.js";
import { connectionFaults } from "./connections.js";
import { frameworkFaults } from "./frameworks.js";
import { idempotencyFaults } from "./idempotency.js";
import { ledgerFaults } from "./ledgers.js";
import { lifeFaults } from "./lives.js";
import { onceFaults } from "./once.js";
import { outboxFaults } from "./outbox.js";
import { outboxDecodingFaults } from "./outbox-decoding.js";
import { outboxPostgresFaults } from "./outbox-postgres.js";
import { pipelineRecordFaults } from "./pipeline-records.js";
import { pipelineFaults } from "./pipelines.js";
import { positionFaults } from "./positions.js";
import { poisonFaults } from "./poison.js";
import { processingFaults } from "./processing.js";
import { queryBuilderFaults } from "./query-builders.js";
import { quotaFaults } from "./quotas.js";
import { requestFaults } from "./requests.js";
import { reuseFaults } from "./reuse.js";
import { ruleFaults } from "./rules.js";
import { sessionFaults } from "./sessions.js";
import { tlsFaults } from "./tls.js";
import { stormFaults } from "./storms.js";
import { logFaults } from "./logs.js";
import { tokenFaults } from "./tokens.js";
import { transactionFaults } from "./transactions.js";
import { turnFaults } from "./turns.js";
export const faults = [
  // First, since they take longest: only a limit of time ends what hangs.
  ...connectionFaults,
  ...ruleFaults,
  ...actFaults,
  ...sessionFaults,
  ...journalFaults,
  ...directoryFaults,
  ...doorFaults,
  ...namespaceFaults,
  ...accessFaults,
  ...configurationFaults,
  ...tlsFaults,
  ...apiKeyFaults,
  ...laneFaults,
  ...lifeFaults,
  ...quotaFaults,
  ...requestFaults,
  ...keyFaults,
  ...stormFaults,
  ...logFaults,
  ...tokenFaults,
  ...transactionFaults,
  ...positionFaults,
  ...turnFaults,
  ...clientReadFaults,
  ...clientTokenFaults,
  ...clientWriteFaults,
  ...processingFaults,
  ...pipelineFaults,
  ...pipelineRecordFaults,
  ...chaosFaults,
  ...outboxPostgresFaults,
  ...outboxFaults,
  ...poisonFaults,
  ...outboxDecodingFaults,
  ...onceFaults,
  ...ledgerFaults,
  ...queryBuilderFaults,
  ...idempotencyFaults,
  ...frameworkFaults,
  ...callerFaults,
  ...ecosystemFaults,
  ...errorFaults,
  ...reuseFaults,
];
