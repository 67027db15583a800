/** Entries: all of a kind, those that run, are stuck or have failed, and one by its identity. */

import { useState } from "preact/hooks";
import type { EntryRow, EntryView } from "../../toolkit/console/views.ts";
import { Card, Choice, Empty, Facts, Field, Problem, Table } from "../parts.tsx";
import { go, linkTo } from "../place.ts";
import { useRepeated } from "../repeating.ts";
import { formatBytes } from "../words.ts";
import { useShared } from "../store.ts";
import { ask } from "./api.ts";
import { KIND_WORDS, useOverview } from "./overview.tsx";
import { about, Ago, More, nameOf, partsOf, span, StatePill, useRows, Value } from "./parts.tsx";

const KINDS = Object.entries(KIND_WORDS).map(([kind]) => [kind, kind] as const);
const LISTS = [
  ["overdue", "Lease over: no process works on it"],
  ["running", "Running"],
  ["failed", "Failed"],
  ["released", "Released: free for the next caller"],
] as const;
const EVERY_MS = 5000;

export function WorkPage({ name }: { name: string | undefined }) {
  useOverview();
  const [listed, named] = (name ?? "").split(" ");
  const list = LISTS.find(([id]) => id === listed)?.[0] ?? "overdue";
  const kind = KINDS.find(([id]) => id === named)?.[0] ?? "once";
  const [round, setRound] = useState(0);
  return (
    <Card
      title="Work that is not over"
      actions={
        <button type="button" onClick={() => setRound(round + 1)}>
          Refresh
        </button>
      }
    >
      <div class="toolbar">
        <Choice
          label="Kind"
          value={kind}
          options={KINDS}
          onChange={(next) => go("running", `${list} ${next}`)}
        />
        <Choice
          label="Which"
          value={list}
          options={LISTS}
          onChange={(next) => go("running", `${next} ${kind}`)}
        />
      </div>
      <Rows query={{ kind, list }} round={round} />
      {list === "overdue" ? (
        <p class="note">
          The process that worked on these has ended or hangs. The next call with the same key takes
          the work over. The first ones wait longest; this list has 50 at most.
        </p>
      ) : null}
    </Card>
  );
}

export function EntriesPage({ name }: { name: string | undefined }) {
  useOverview();
  const kind = KINDS.find(([id]) => id === name)?.[0] ?? "once";
  const [text, setText] = useState("");
  const [scope, setScope] = useState("");
  const [round, setRound] = useState(0);
  return (
    <>
      <LookUp kind={kind} />
      <Card
        title="All entries"
        actions={
          <button type="button" onClick={() => setRound(round + 1)}>
            Refresh
          </button>
        }
      >
        <form
          class="toolbar"
          onSubmit={(event) => {
            event.preventDefault();
            setScope(text);
          }}
        >
          <Choice
            label="Kind"
            value={kind}
            options={KINDS}
            onChange={(next) => go("entries", next)}
          />
          <Field
            label="Scope (exact match)"
            value={text}
            onInput={setText}
            placeholder="every scope"
          />
          <button type="submit">Filter</button>
        </form>
        <Rows
          query={{ kind, list: "all", scope: scope === "" ? undefined : scope }}
          round={round}
        />
      </Card>
    </>
  );
}

function LookUp({ kind }: { kind: string }) {
  const [scope, setScope] = useState("");
  const [key, setKey] = useState("");
  return (
    <Card title="Was it done?">
      <form
        class="toolbar"
        onSubmit={(event) => {
          event.preventDefault();
          go("entry", nameOf(kind, scope, key));
        }}
      >
        <Field label="Scope" value={scope} onInput={setScope} isRequired />
        <Field label="Key" value={key} onInput={setKey} isRequired />
        <button type="submit" class="solid">
          Look up
        </button>
      </form>
    </Card>
  );
}

function Rows({
  query,
  round,
}: {
  query: Readonly<Record<string, string | undefined>>;
  round: number;
}) {
  const listed = useRows<EntryRow>("entries", query, round);
  const { rows, error } = listed;
  return (
    <>
      {error === undefined ? null : <Problem error={error} />}
      {rows === undefined ? (
        error === undefined ? (
          <Empty>Reading…</Empty>
        ) : null
      ) : (
        <Table
          label="Entries"
          head={["Key", "Scope", "State", "Attempts", "Lease", "Made"]}
          empty="There is none."
          rows={rows.map((row) => ({
            key: nameOf(row.kind, row.scope, row.key),
            cells: [
              <a href={linkTo("entry", nameOf(row.kind, row.scope, row.key))}>{row.key}</a>,
              row.scope,
              <StatePill state={stateOf(row)} />,
              row.attempts,
              leaseOf(row),
              <Ago ms={row.ageMs} />,
            ],
          }))}
        />
      )}
      <More listed={listed} />
    </>
  );
}

function stateOf({ state, leaseLeftMs }: EntryRow): string {
  return state === "running" && leaseLeftMs !== undefined && leaseLeftMs <= 0 ? "overdue" : state;
}

function leaseOf({ leaseLeftMs }: EntryRow): string {
  if (leaseLeftMs === undefined) return "–";
  return leaseLeftMs > 0 ? `${span(leaseLeftMs)} left` : `over for ${span(-leaseLeftMs)}`;
}

export function EntryPage({ name }: { name: string | undefined }) {
  useOverview();
  const may = useShared(about)?.maySeeValues === true;
  const [isAsked, setAsked] = useState(false);
  const [kind, scope, key] = partsOf(name) ?? [];
  const { value, error } = useRepeated(
    (signal) => {
      const values = isAsked ? "yes" : undefined;
      return ask<EntryView>("entry", { kind, scope, key, values }, signal);
    },
    [name, isAsked],
    EVERY_MS,
  );
  return (
    <>
      <p class="crumbs">
        <a href={linkTo("entries", kind)}>{kind ?? "Entries"}</a> <span aria-hidden="true">/</span>{" "}
        <code>{key}</code>
      </p>
      {error === undefined ? null : <Problem error={error} />}
      {value === undefined ? null : <About entry={value} />}
      {value === undefined || value.valueBytes === 0 ? null : (
        <Card title="Stored value">
          {value.value === undefined ? (
            <Hidden bytes={value.valueBytes} may={may} show={() => setAsked(true)} />
          ) : (
            <Value value={value.value} />
          )}
        </Card>
      )}
    </>
  );
}

function About({ entry }: { entry: EntryView }) {
  const { scope, key, attempts, token, revision, fingerprint, keepLeftMs } = entry;
  return (
    <Card title={key}>
      <Facts
        of={[
          ["State", <StatePill state={stateOf(entry)} />],
          ["Scope", scope],
          ["Attempts", attempts],
          ["Lease", leaseOf(entry)],
          ["Made", <Ago ms={entry.ageMs} />],
          ["Kept for", keepLeftMs === undefined ? "always" : span(keepLeftMs)],
          ["Token", token],
          ["Written", `${String(revision)} times`],
          ["Fingerprint", fingerprint],
        ]}
      />
      {entry.kind === "saga" ? <ToSaga scope={scope} sagaKey={key} /> : null}
    </Card>
  );
}

function ToSaga({ scope, sagaKey }: { scope: string; sagaKey: string }) {
  const slash = scope.indexOf("/");
  const name = nameOf(scope.slice(0, slash), scope.slice(slash + 1), sagaKey);
  return (
    <p>
      <a href={linkTo("saga", name)}>Its steps and its time line</a>
    </p>
  );
}

/** In place of what may be personal data. */
export function Hidden(props: { bytes?: number; may: boolean; show: () => void }) {
  const { bytes, may, show } = props;
  const size = bytes === undefined ? "" : ` ${formatBytes(bytes)}`;
  if (!may) return <p class="note">Hidden{size}: your app does not let you see values.</p>;
  return (
    <button type="button" onClick={show}>
      Show{size} (may be personal data)
    </button>
  );
}
