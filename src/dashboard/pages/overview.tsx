/** How the server does at this moment, and in the last minutes. */

import { BYTE_STEPS, Chart, COUNT_STEPS } from "../chart.tsx";
import { sumOfMetric } from "../../base/metrics-reading.ts";
import { health, history, look, lookRefusal, part } from "../metrics.ts";
import { linkTo } from "../place.ts";
import { Card, Empty, Problem, Tile } from "../parts.tsx";
import { Refusal } from "../refusal.ts";
import { useShared } from "../store.ts";
import { countOf, formatBytes, formatCount, formatMs, formatRate } from "../words.ts";

const OUTCOMES: Readonly<Record<string, string>> = {
  accepted: "stored",
  duplicate: "retry by its number: nothing stored twice",
  replayed: "retry by its key: nothing stored twice",
  fenced: "writer of an older epoch or session",
  gap: "an append before it is missing",
  reused: "a number that had other content",
  key_reused: "a key that had other content",
  tail_moved: "another writer was faster (If-Match)",
  closed: "the stream is closed",
  missing: "no such stream",
};

export function OverviewPage() {
  const seen = useShared(look);
  const refusal = useShared(lookRefusal);
  if (seen === undefined) {
    if (refusal === undefined) return <Empty>Reading the figures…</Empty>;
    if (refusal.status !== 403) return <Problem error={refusal} />;
    return (
      <Empty>
        Your credential may not see the figures of the server: that needs the right <b>observe</b>.
        The other pages show what it may see.
      </Empty>
    );
  }
  return (
    <>
      <OfNode />
      <Tiles values={seen.values} />
      <Charts />
      <Outcomes values={seen.values} />
    </>
  );
}

/** Of a cluster the page shows one node. */
function OfNode() {
  const self = useShared(part);
  if (self === undefined) return null;
  const { node, shards } = self;
  return (
    <p class="note">
      These are the figures of the node <b>{node}</b>, which owns {shards.owned} of {shards.all}{" "}
      shards. <a href={linkTo("nodes")}>All nodes</a>
    </p>
  );
}

function Tiles({ values }: { values: ReadonlyMap<string, number> }) {
  const past = useShared(history);
  const state = useShared(health);
  const of = (name: string): number => values.get(name) ?? 0;
  const outcome = (name: string): number => of(`hapax_appends_total{outcome="${name}"}`);
  const duplicates = sumOfMetric(values, "hapax_duplicates_total");
  const durability = [...values.keys()].find((key) => key.startsWith("hapax_info{"));
  const [word = ""] = /"[^"]+"/.exec(durability ?? "") ?? [];
  const isOpen = !(state instanceof Refusal);
  const stored = outcome("accepted");
  const lastRate = past.appends.at(-1) ?? 0;
  return (
    <div class="tiles">
      <Tile
        isMain
        label="Duplicates stopped"
        value={formatCount(duplicates)}
        note={`${formatRate(past.duplicates.at(-1) ?? 0)} a second now`}
        tone="good"
      />
      <Tile
        isMain
        label="Appends a second"
        value={formatRate(lastRate)}
        note={`${formatCount(stored)} since the start`}
      />
      <Tile
        isMain
        label="Sync time, p99"
        value={formatMs(past.slowMs.findLast((value) => value !== null))}
        note={`median: ${formatMs(past.medianMs.findLast((value) => value !== null))}`}
      />
      <Tile
        isMain
        label="Write path"
        value={isOpen ? "open" : state.status === 0 ? "no answer" : wordOf(state)}
        note={`durability: ${word.replaceAll('"', "")}`}
        tone={isOpen ? "good" : "bad"}
      />
      <Tile label="Fenced" value={formatCount(outcome("fenced"))} note="older writers refused" />
      <Tile label="Gaps" value={formatCount(outcome("gap"))} note="appends out of order" />
      <Tile label="Live readers" value={formatCount(of("hapax_live_readers"))} />
      <Tile label="Streams" value={formatCount(of("hapax_streams"))} />
      <Tile
        label="Disk"
        value={formatBytes(of("hapax_file_bytes"))}
        note={`${formatBytes(of("hapax_stored_bytes"))} of records`}
      />
      <Tile label="Keys remembered" value={formatCount(of("hapax_keys"))} />
      <Tile
        label="Group lag"
        value={formatBytes(of("hapax_group_lag_bytes"))}
        note={`${countOf(of("hapax_groups"), "group")}, ${countOf(of("hapax_group_members"), "member")}`}
      />
      <Tile
        label="Transactions"
        value={formatCount(of('hapax_transactions_total{outcome="committed"}'))}
        note={`${formatCount(of('hapax_transactions_total{outcome="replayed"}'))} retries recognised`}
      />
    </div>
  );
}

function wordOf({ facts: { writes } }: Refusal): string {
  return typeof writes === "string" ? writes : "stopped";
}

function Charts() {
  const past = useShared(history);
  const { seconds } = past;
  return (
    <div class="charts">
      <Chart
        title="Appends a second"
        seconds={seconds}
        format={formatRate}
        lines={[
          { name: "stored", colour: "--line-1", values: past.appends, isFilled: true },
          { name: "duplicates stopped", colour: "--line-2", values: past.duplicates },
        ]}
      />
      <Chart
        title="Sync"
        seconds={seconds}
        format={formatMs}
        lines={[
          { name: "p99", colour: "--line-3", values: past.slowMs },
          { name: "median", colour: "--line-1", values: past.medianMs },
        ]}
      />
      <Chart
        title="Written a second"
        seconds={seconds}
        format={formatBytes}
        steps={BYTE_STEPS}
        lines={[{ name: "bytes", colour: "--line-4", values: past.bytes, isFilled: true }]}
      />
      <Chart
        title="Live readers"
        seconds={seconds}
        format={formatCount}
        steps={COUNT_STEPS}
        lines={[{ name: "readers", colour: "--line-2", values: past.readers, isFilled: true }]}
      />
    </div>
  );
}

/** Every append since the start, by what became of it. */
function Outcomes({ values }: { values: ReadonlyMap<string, number> }) {
  const rows = [...values].flatMap(([key, count]) => {
    const [, name] = /^hapax_appends_total\{outcome="(\w+)"\}$/.exec(key) ?? [];
    return name === undefined || count === 0 ? [] : [[name, count] as const];
  });
  const total = rows.reduce((sum, [, count]) => sum + count, 0);
  const sorted = rows.toSorted(([, one], [, other]) => other - one);
  return (
    <Card title="Appends by outcome">
      {sorted.length === 0 ? <Empty>No append yet.</Empty> : null}
      <ul class="bars">
        {sorted.map(([name, count]) => (
          <li key={name}>
            <span class="name">{name}</span>
            <meter
              min={0}
              max={total}
              value={count}
              aria-label={`${name}: ${formatCount(count)} of ${formatCount(total)}`}
            />
            <span class="count">{formatCount(count)}</span>
            <span class="note">{OUTCOMES[name] ?? ""}</span>
          </li>
        ))}
      </ul>
    </Card>
  );
}
