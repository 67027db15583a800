/**
 * `/_hapax/metrics`: what the engine counts, as Prometheus text (version 0.0.4), in base units. PROTOCOL.md §12.3.
 *
 *   - no label holds the name of a stream, a producer or a key: their number has no bound;
 *   - a caller of a namespace sees the figures of its namespace, and no others.
 */

import {
  METRICS_TYPE,
  metricHead,
  metricLabels,
  metricLine,
  metricNumber,
} from "../../base/prometheus-text.ts";
import type { Access } from "../access/access.ts";
import type { GroupTotals } from "../engine/groups.ts";
import type { Histogram } from "../engine/meter.ts";
import { HEADER } from "../../protocol/headers.ts";
import { openBackupsOf } from "./backups.ts";
import type { ServerAnswer } from "./exchange.ts";
import type { ServerParts } from "./parts.ts";
import { quotaSamples } from "./quota-samples.ts";
import type { QuotaBook } from "./quotas.ts";
import type { RouteOperation, RouteCall } from "./route.ts";

const utf8 = new TextEncoder();

export const SHOW_METRICS: RouteOperation = {
  needs: ["observe"],
  handle: showMetrics,
};

async function showMetrics({ parts, access }: RouteCall): Promise<ServerAnswer> {
  const { namespace } = access;
  const text =
    namespace === undefined
      ? formatMetrics(parts, await parts.engine.groups.totals())
      : await formatNamespace(parts, access, namespace);
  return {
    status: 200,
    headers: {
      [HEADER.contentType]: METRICS_TYPE,
      [HEADER.cacheControl]: "no-store",
    },
    body: utf8.encode(text),
  };
}

type Labels = Readonly<Record<string, string>>;
type Kind = "counter" | "gauge";

class MetricsText {
  readonly #lines: string[] = [];

  family(
    name: string,
    kind: Kind,
    help: string,
    values: readonly (readonly [Labels, number])[],
  ): void {
    this.#head(name, kind, help);
    for (const [labels, value] of values) {
      this.#lines.push(metricLine(name, metricLabels(Object.entries(labels)), value));
    }
  }

  one(name: string, kind: Kind, help: string, value: number): void {
    this.family(name, kind, help, [[{}, value]]);
  }

  histogram(name: string, help: string, histogram: Histogram): void {
    this.#head(name, "histogram", help);
    let count = 0;
    for (const [at, each] of histogram.counts.entries()) {
      count += each;
      const le = histogram.bounds[at];
      const bound = le === undefined ? "+Inf" : metricNumber(le);
      this.#lines.push(`${name}_bucket{le="${bound}"} ${count}`);
    }
    this.#lines.push(`${name}_sum ${metricNumber(histogram.sum)}`, `${name}_count ${count}`);
  }

  toString(): string {
    return `${this.#lines.join("\n")}\n`;
  }

  #head(name: string, kind: Kind | "histogram", help: string): void {
    this.#lines.push(...metricHead(name, kind, help));
  }
}

/** What a caller of a namespace may know: nothing here depends on what others do. */
async function formatNamespace(
  parts: ServerParts,
  access: Access,
  namespace: string,
): Promise<string> {
  const { groups, holdings } = parts.engine;
  const holding = await holdings.open(namespace);
  try {
    const totals = await groups.totals((id) => access.unscoped(id) !== undefined);
    const text = new MetricsText();
    writeGroups(text, totals);
    writeStored(text, holding.streams, holding.bytes);
    if (parts.quotas !== undefined) writeQuotas(text, parts.quotas, namespace);
    return text.toString();
  } finally {
    holdings.close(holding);
  }
}

function writeStored(text: MetricsText, streams: number, bytes: number): void {
  text.one("hapax_streams", "gauge", "Streams, soft-deleted ones too.", streams);
  text.one("hapax_stored_bytes", "gauge", "Bytes of stored appends.", bytes);
}

function formatMetrics(parts: ServerParts, totals: GroupTotals): string {
  const { engine } = parts;
  const text = new MetricsText();
  writeAppends(text, engine.meter);
  writeKeys(text, parts);
  writeTransactions(text, parts, totals);
  writeCommits(text, engine.meter);
  writeCompaction(text, engine.meter);
  const { liveBytes, fileBytes, recoveryMs } = engine.storeStats();
  const isOpen = engine.stopped === undefined && !engine.isFull;
  text.family("hapax_info", "gauge", "The durability that the store has.", [
    [{ durability: engine.durability }, 1],
  ]);
  text.one("hapax_writes_open", "gauge", "1 while writes are taken, else 0.", isOpen ? 1 : 0);
  text.one("hapax_live_readers", "gauge", "Long-polls and SSE readers.", engine.liveReaders);
  writeStored(text, engine.world.byId.size, liveBytes);
  text.one("hapax_file_bytes", "gauge", "Bytes that the store's files have.", fileBytes);
  text.one("hapax_recovery_seconds", "gauge", "Time that opening took.", recoveryMs / 1000);
  writeBackups(text, parts);
  if (parts.quotas !== undefined) writeQuotas(text, parts.quotas, undefined);
  return text.toString();
}

function writeAppends(text: MetricsText, meter: ServerParts["engine"]["meter"]): void {
  const { outcomes, duplicates } = meter;
  text.family(
    "hapax_appends_total",
    "counter",
    "Appends by what became of them.",
    Object.entries(outcomes).map(([outcome, count]) => [{ outcome }, count]),
  );
  text.family(
    "hapax_duplicates_total",
    "counter",
    "Retries that were recognised, by what they were recognised by.",
    Object.entries(duplicates).map(([by, count]) => [{ by }, count]),
  );
  text.one("hapax_appended_bytes_total", "counter", "Bytes appended.", meter.appendedBytes);
  text.one("hapax_held_total", "counter", "Appends held for their predecessors.", meter.held);
}

function writeKeys(text: MetricsText, parts: ServerParts): void {
  const { engine } = parts;
  const { meter } = engine;
  let keys = 0;
  let bytes = 0;
  for (const id of engine.keyedStreams) {
    const window = engine.world.byId.get(id)?.keys?.window;
    keys += window === undefined ? 0 : window.next - window.first;
    bytes += window?.memoryBytes ?? 0;
  }
  text.one("hapax_keys", "gauge", "Idempotency keys that are remembered.", keys);
  text.one("hapax_key_window_bytes", "gauge", "Memory of the windows of keys.", bytes);
  text.family("hapax_keys_evicted_total", "counter", "Keys forgotten, by reason.", [
    [{ reason: "age" }, meter.keysExpired],
    [{ reason: "full" }, meter.keysPushedOut],
  ]);
  text.one(
    "hapax_key_retry_age_ratio_max",
    "gauge",
    "Age of the oldest retry that a key was recognised by, as a share of its window, since the start.",
    meter.retryAgeRatioMax,
  );
  text.one("hapax_held_appends", "gauge", "Appends held at this moment.", engine.heldAppends);
}

function writeTransactions(text: MetricsText, parts: ServerParts, totals: GroupTotals): void {
  const { transactions, groups } = parts.engine.meter;
  text.family(
    "hapax_transactions_total",
    "counter",
    "Transactions by what became of them.",
    Object.entries(transactions).map(([outcome, count]) => [{ outcome }, count]),
  );
  text.one("hapax_group_claims_total", "counter", "Claims of members.", groups.claims);
  text.one("hapax_group_commits_total", "counter", "Commits of leases.", groups.commits);
  text.one(
    "hapax_group_leases_lost_total",
    "counter",
    "Leases that were over when their holder committed.",
    groups.lostLeases,
  );
  writeGroups(text, totals);
}

function writeGroups(text: MetricsText, totals: GroupTotals): void {
  text.one("hapax_groups", "gauge", "Groups.", totals.groups);
  text.one("hapax_group_members", "gauge", "Members of groups that have claimed.", totals.members);
  text.one(
    "hapax_group_lag_bytes",
    "gauge",
    "Bytes between the committed offsets and the tails, of all groups.",
    totals.lag,
  );
}

function writeQuotas(text: MetricsText, book: QuotaBook, namespace: string | undefined): void {
  const { used, limits, refusals } = quotaSamples(book, namespace);
  text.family("hapax_quota_used", "gauge", "What is used of a quota.", used);
  text.family("hapax_quota_limit", "gauge", "The limit of a quota, where there is one.", limits);
  text.family(
    "hapax_quota_refusals_total",
    "counter",
    "Requests refused because a quota was used up.",
    refusals,
  );
}

function writeCompaction(text: MetricsText, { compaction }: ServerParts["engine"]["meter"]): void {
  text.family(
    "hapax_compaction_passes_total",
    "counter",
    "Passes over changelogs, by how they ended.",
    Object.entries(compaction.passes).map(([outcome, count]) => [{ outcome }, count]),
  );
  const { records, droppedBytes, repeatedBytes, lastAtMs } = compaction;
  const dropped = "Records that compaction has let go.";
  text.one("hapax_compaction_dropped_records_total", "counter", dropped, records);
  const bytes = "Bytes that compaction has let go.";
  text.one("hapax_compaction_dropped_bytes_total", "counter", bytes, droppedBytes);
  const repeated = "Bytes of newest records that compaction has appended again.";
  text.one("hapax_compaction_repeated_bytes_total", "counter", repeated, repeatedBytes);
  const last = "When the last pass was done, since 1970. 0: none since the start.";
  text.one("hapax_compaction_last_timestamp_seconds", "gauge", last, lastAtMs / 1000);
}

function writeBackups(text: MetricsText, parts: ServerParts): void {
  const { engine } = parts;
  const { last, running } = openBackupsOf(parts);
  text.one("hapax_backups_running", "gauge", "Backups that clients are making.", running);
  text.one(
    "hapax_backup_last_timestamp_seconds",
    "gauge",
    "Instant of the last backup that was finished since the start, in seconds since 1970; 0 if none was.",
    (last?.takenAtMs ?? 0) / 1000,
  );
  text.one("hapax_backup_last_bytes", "gauge", "Size of that backup.", last?.bytes ?? 0);
  const { number } = engine.world.incarnation;
  text.one("hapax_incarnation", "gauge", "1, and one more after each restore.", number);
}

function writeCommits(text: MetricsText, meter: ServerParts["engine"]["meter"]): void {
  text.histogram(
    "hapax_commit_seconds",
    "Time of a group commit: one write and, with fsync, one sync.",
    meter.commitSeconds,
  );
  text.histogram("hapax_commit_changes", "Changes in a group commit.", meter.commitChanges);
}
