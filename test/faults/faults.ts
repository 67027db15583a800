/**
 * The planted faults: each breaks one guarantee on purpose, and names the test that must fail for
 * it. `npm run test:faults` runs them all; a fault that no test catches is a guarantee that is not
 * tested.
 *
 *   find      occurs exactly once in `file`;
 *   replace   takes its place and still compiles, so that only the behaviour is wrong;
 *   caughtBy  a test that passes without the fault, by its file and its whole title.
 */

import { accessFaults } from "./access.ts";
import { actFaults } from "./acts.ts";
import { apiKeyFaults } from "./api-keys.ts";
import { chaosFaults } from "./chaos.ts";
import { clientReadFaults } from "./client-reads.ts";
import { compactionFaults } from "./compaction.ts";
import { compressionFaults } from "./compression.ts";
import { clockFaults } from "./clock.ts";
import { clientTokenFaults } from "./client-tokens.ts";
import { clientWriteFaults } from "./client-writes.ts";
import { ecosystemFaults } from "./ecosystem.ts";
import { errorFaults } from "./errors.ts";
import { consoleFaults } from "./console.ts";
import { dashboardFaults } from "./dashboard.ts";
import { backupFaults } from "./backups.ts";
import { copyFaults } from "./copies.ts";
import { directoryFaults } from "./directories.ts";
import { doorFaults } from "./doors.ts";
import { namespaceFaults } from "./namespaces.ts";
import { jobFaults } from "./jobs.ts";
import { journalFaults } from "./journal.ts";
import { keyFaults } from "./keys.ts";
import { laneFaults } from "./lane.ts";
import { callerFaults } from "./callers.ts";
import { configurationFaults } from "./configuration.ts";
import { connectionFaults } from "./connections.ts";
import { fetchFaults } from "./fetch.ts";
import { objectFaults } from "./objects.ts";
import { clusterFaults } from "./cluster.ts";
import { postgresFaults } from "./postgres.ts";
import { frameworkFaults } from "./frameworks.ts";
import { idempotencyFaults } from "./idempotency.ts";
import { ledgerFaults } from "./ledgers.ts";
import { lifeFaults } from "./lives.ts";
import { objectLedgerFaults } from "./object-ledger.ts";
import { limitFaults } from "./limits.ts";
import { onceFaults } from "./once.ts";
import { outboxFaults } from "./outbox.ts";
import { outboxDecodingFaults } from "./outbox-decoding.ts";
import { outboxPostgresFaults } from "./outbox-postgres.ts";
import { pipelineRecordFaults } from "./pipeline-records.ts";
import { pipelineFaults } from "./pipelines.ts";
import { positionFaults } from "./positions.ts";
import { poisonFaults } from "./poison.ts";
import { processingFaults } from "./processing.ts";
import { queryBuilderFaults } from "./query-builders.ts";
import { quotaFaults } from "./quotas.ts";
import { registryFaults } from "./registries.ts";
import { retentionFaults } from "./retention.ts";
import { requestFaults } from "./requests.ts";
import { redisFaults } from "./redis.ts";
import { reuseFaults } from "./reuse.ts";
import { ruleFaults } from "./rules.ts";
import { objectWorkFaults } from "./object-work.ts";
import { sagaFaults } from "./sagas.ts";
import { followAllFaults } from "./follow-all.ts";
import { seekingFaults } from "./seeking.ts";
import { sessionFaults } from "./sessions.ts";
import { tlsFaults } from "./tls.ts";
import { stormFaults } from "./storms.ts";
import { logFaults } from "./logs.ts";
import { tokenFaults } from "./tokens.ts";
import { transactionFaults } from "./transactions.ts";
import { turnFaults } from "./turns.ts";
import { windowFaults } from "./windows.ts";

export interface Fault {
  /** What goes wrong, in a few words: `answer before commit`. */
  readonly name: string;
  /** Label of the broken line in GUARANTEES.md. */
  readonly guarantee: string;
  readonly file: string;
  readonly find: string;
  readonly replace: string;
  readonly caughtBy: { readonly file: string; readonly test: string };
}

export const faults: readonly Fault[] = [
  // First, since they take longest: only a limit of time ends what hangs.
  ...connectionFaults,
  ...ruleFaults,
  ...actFaults,
  ...objectWorkFaults,
  ...sagaFaults,
  ...sessionFaults,
  ...journalFaults,
  ...consoleFaults,
  ...dashboardFaults,
  ...copyFaults,
  ...backupFaults,
  ...directoryFaults,
  ...doorFaults,
  ...namespaceFaults,
  ...accessFaults,
  ...configurationFaults,
  ...tlsFaults,
  ...apiKeyFaults,
  ...laneFaults,
  ...fetchFaults,
  ...objectFaults,
  ...postgresFaults,
  ...clusterFaults,
  ...limitFaults,
  ...compressionFaults,
  ...clockFaults,
  ...lifeFaults,
  ...quotaFaults,
  ...requestFaults,
  ...registryFaults,
  ...retentionFaults,
  ...compactionFaults,
  ...seekingFaults,
  ...followAllFaults,
  ...keyFaults,
  ...stormFaults,
  ...logFaults,
  ...tokenFaults,
  ...transactionFaults,
  ...positionFaults,
  ...turnFaults,
  ...windowFaults,
  ...clientReadFaults,
  ...clientTokenFaults,
  ...clientWriteFaults,
  ...processingFaults,
  ...jobFaults,
  ...pipelineFaults,
  ...pipelineRecordFaults,
  ...chaosFaults,
  ...outboxPostgresFaults,
  ...outboxFaults,
  ...poisonFaults,
  ...outboxDecodingFaults,
  ...objectLedgerFaults,
  ...onceFaults,
  ...ledgerFaults,
  ...redisFaults,
  ...queryBuilderFaults,
  ...idempotencyFaults,
  ...frameworkFaults,
  ...callerFaults,
  ...ecosystemFaults,
  ...errorFaults,
  ...reuseFaults,
];
