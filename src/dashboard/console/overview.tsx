/** The overview: what runs, what waits for a person, and how far the outbox is behind. */

import type { KindCount, OverviewView } from "../../toolkit/console/views.ts";
import { Card, Empty, Facts, Problem, Table, Tile } from "../parts.tsx";
import { linkTo } from "../place.ts";
import { useRepeated } from "../repeating.ts";
import { formatCount } from "../words.ts";
import { ask } from "./api.ts";
import { about, span } from "./parts.tsx";

const EVERY_MS = 5000;

/** Reads the overview again and again; the frame shows who looks. */
export function useOverview() {
  return useRepeated(
    async (signal) => {
      const value = await ask<OverviewView>("overview", {}, signal);
      about.set(value);
      return value;
    },
    [],
    EVERY_MS,
  );
}

export function OverviewPage() {
  const { value, error } = useOverview();
  return (
    <>
      {error === undefined ? null : <Problem error={error} />}
      {value === undefined ? <Empty>Reading…</Empty> : <Shown value={value} />}
    </>
  );
}

function Shown({ value }: { value: OverviewView }) {
  const { kinds, relays, countMax, hasOutbox } = value;
  const sum = (of: (one: KindCount) => number): string => {
    const total = kinds.reduce((count, one) => count + of(one), 0);
    return `${formatCount(total)}${kinds.some((one) => of(one) >= countMax) ? "+" : ""}`;
  };
  const saga = kinds.find(({ kind }) => kind === "saga");
  const hasOverdue = kinds.some(({ overdue }) => overdue > 0);
  const lagMs = Math.max(0, ...relays.map((one) => one.lagMs));
  const dead = relays.reduce((total, one) => total + one.dead, 0);
  const count = (many: number): string => countedUpTo(many, countMax);
  return (
    <>
      <div class="tiles">
        <Tile isMain label="Running" value={sum(({ running }) => running)} />
        <Tile
          isMain
          label="Lease over"
          value={sum(({ overdue }) => overdue)}
          note="no process works on it"
          tone={hasOverdue ? "warn" : "good"}
        />
        <Tile
          isMain
          label="Stuck sagas"
          value={count(saga?.failed ?? 0)}
          tone={(saga?.failed ?? 0) > 0 ? "bad" : "good"}
        />
        <Tile
          isMain
          label="Dead events"
          value={hasOutbox ? formatCount(dead) : "–"}
          note={hasOutbox ? `outbox behind by ${span(lagMs)}` : "this ledger has no outbox"}
          tone={dead > 0 ? "bad" : "good"}
        />
      </div>
      <Card title="By primitive">
        <Table
          label="By primitive"
          head={["Kind", "What it is", "Running", "Lease over", "Failed"]}
          empty="Nothing is kept."
          rows={kinds.map((one) => ({
            key: one.kind,
            cells: [
              <a href={linkTo("entries", one.kind)}>{one.kind}</a>,
              KIND_WORDS[one.kind] ?? "",
              <a href={linkTo("running", `running ${one.kind}`)}>{count(one.running)}</a>,
              <a href={linkTo("running", `overdue ${one.kind}`)}>{count(one.overdue)}</a>,
              <a href={linkTo("running", `failed ${one.kind}`)}>{count(one.failed)}</a>,
            ],
          }))}
        />
      </Card>
      <Card title="This ledger">
        <Facts
          of={[
            ["Ledger", value.ledger],
            ["What it keeps survives", DURABILITY[value.durability] ?? value.durability],
            ["You are", value.by],
            ["You may", value.acts.length === 0 ? "look" : value.acts.join(", ")],
            ["Values", value.maySeeValues ? "shown when you ask" : "hidden"],
          ]}
        />
      </Card>
    </>
  );
}

const DURABILITY: Readonly<Record<string, string>> = {
  memory: "nothing: it is gone with the process",
  database: "what your database survives",
  server: "what its one server survives",
};

export const KIND_WORDS: Readonly<Record<string, string>> = {
  once: "work that is done once for a key",
  http: "requests with an Idempotency-Key",
  inbox: "the messages of an inbox",
  saga: "steps that all happen, or are all undone",
  relay: "who publishes the outbox",
  lease: "who holds what",
  pipeline: "positions of pipelines",
  version: "versioned updates",
  newest: "the newest value of a key",
};

/** `100+` where there may be more than were counted. */
function countedUpTo(count: number, most: number): string {
  return count >= most ? `${formatCount(most)}+` : formatCount(count);
}
