/** Sagas: those that are open or stuck, and one with its steps and its time line. */

import { useState } from "preact/hooks";
import type { MomentRow, SagaDetail, SagaRow, StepRow } from "../../toolkit/console/views.ts";
import { Act, Card, Choice, Empty, Facts, Field, Problem, Table } from "../parts.tsx";
import { go, linkTo } from "../place.ts";
import { useRepeated } from "../repeating.ts";
import { useShared } from "../store.ts";
import { act, ask } from "./api.ts";
import { Hidden } from "./entries.tsx";
import { useOverview } from "./overview.tsx";
import { about, Ago, More, nameOf, partsOf, span, StatePill, useRows, Value } from "./parts.tsx";

const LISTS = [
  ["open", "Not over: the oldest first"],
  ["stuck", "Stuck: they wait for you"],
  ["all", "All"],
] as const;
const EVERY_MS = 3000;

export function SagasPage({ name }: { name: string | undefined }) {
  useOverview();
  const list = LISTS.find(([id]) => id === name)?.[0] ?? "stuck";
  const [round, setRound] = useState(0);
  const listed = useRows<SagaRow>("sagas", { list }, round);
  const { rows, error } = listed;
  return (
    <Card
      title="Sagas"
      actions={
        <button type="button" onClick={() => setRound(round + 1)}>
          Refresh
        </button>
      }
    >
      <div class="toolbar">
        <Choice label="Which" value={list} options={LISTS} onChange={(next) => go("sagas", next)} />
      </div>
      {error === undefined ? null : <Problem error={error} />}
      {rows === undefined ? (
        <Empty>Reading…</Empty>
      ) : (
        <Table
          label="Sagas"
          head={["Key", "Saga", "Scope", "State", "At", "Started"]}
          empty={list === "stuck" ? "No saga is stuck." : "There is none."}
          rows={rows.map((row) => ({
            key: nameOf(row.saga, row.scope, row.key),
            cells: [
              <a href={linkTo("saga", nameOf(row.saga, row.scope, row.key))}>{row.key}</a>,
              row.saga,
              row.scope,
              <StatePill state={row.state} />,
              row.problem ?? row.at ?? "–",
              <Ago ms={row.ageMs} />,
            ],
          }))}
        />
      )}
      <More listed={listed} />
    </Card>
  );
}

export function SagaPage({ name }: { name: string | undefined }) {
  useOverview();
  const may = useShared(about)?.maySeeValues === true;
  const [isAsked, setAsked] = useState(false);
  const [saga, scope, key] = partsOf(name) ?? [];
  const { value, error, reload } = useRepeated(
    (signal) => {
      const values = isAsked ? "yes" : undefined;
      return ask<SagaDetail>("saga", { saga, scope, key, values }, signal);
    },
    [name, isAsked],
    EVERY_MS,
  );
  return (
    <>
      <p class="crumbs">
        <a href={linkTo("sagas")}>Sagas</a> <span aria-hidden="true">/</span> <code>{key}</code>
      </p>
      {error === undefined ? null : <Problem error={error} />}
      {value === undefined ? null : (
        <>
          <About saga={value} onChange={reload} />
          <Steps saga={value} />
          <TimeLine saga={value} />
          <Card title="Input and results">
            {isAsked ? <Values saga={value} /> : <Hidden may={may} show={() => setAsked(true)} />}
          </Card>
        </>
      )}
    </>
  );
}

function About({ saga, onChange }: { saga: SagaDetail; onChange: () => void }) {
  const { cause, stuck, waiting } = saga;
  return (
    <Card title={`${saga.saga}: ${saga.key}`} actions={<Acts saga={saga} onChange={onChange} />}>
      <Facts
        of={[
          ["State", <StatePill state={saga.state} />],
          ["Scope", saga.scope],
          ["Version", saga.version],
          ["Started", <Ago ms={saga.ageMs} />],
          ["Waits for", waiting === undefined ? undefined : waitsFor(waiting)],
          ["Undone because", cause === undefined ? undefined : `${cause.name}: ${cause.message}`],
        ]}
      />
      {saga.problem === undefined ? null : <p class="problem">{saga.problem}</p>}
      {stuck === undefined ? null : (
        <div class="problem">
          <strong>
            Stuck{stuck.step === undefined ? "" : ` at ${stuck.step}`}: {stuck.reason}
          </strong>
          <p>{stuck.message}</p>
        </div>
      )}
    </Card>
  );
}

function waitsFor({ for: what, step, leftMs }: NonNullable<SagaDetail["waiting"]>): string {
  const at = step === undefined ? what : `${what}, ${step}`;
  return leftMs === undefined || leftMs <= 0 ? at : `${at}, for ${span(leftMs)} at most`;
}

function Acts({ saga, onChange }: { saga: SagaDetail; onChange: () => void }) {
  const acts = useShared(about)?.acts ?? [];
  const [note, setNote] = useState("");
  const [result, setResult] = useState("");
  const { saga: name, scope, key, stuck, state } = saga;
  const isOver = ["completed", "undone", "finished", "unreadable"].includes(state);
  const run = (what: string, more: object = {}) => {
    const said = note === "" ? {} : { note };
    return act({ act: `saga.${what}`, saga: name, scope, key, ...said, ...more });
  };
  const open = (): void => {
    setNote("");
    setResult("");
  };
  const field = <Field label="Why? It is kept in the time line" value={note} onInput={setNote} />;
  const common = { onDone: onChange, onOpen: open };
  const has = (what: string): boolean => !isOver && acts.includes(`saga.${what}`);
  const step = stuck?.step;
  return (
    <>
      {has("retry") && stuck !== undefined ? (
        <Act label="Retry…" title="Try it again?" run={() => run("retry")} {...common}>
          <p>
            Its attempts are counted from one again. A process that has the definition goes on at
            once.
          </p>
          {field}
        </Act>
      ) : null}
      {has("skip") && step !== undefined ? (
        <Act
          label="Skip…"
          title={`Mark ${step} as done?`}
          run={() => run("skip", { step, ...(result === "" ? {} : { result }) })}
          {...common}
        >
          <p>Do this after you have found out, or done by hand, what the step should do.</p>
          <Field label="Result of the step, as JSON" value={result} onInput={setResult} />
          {field}
        </Act>
      ) : null}
      {has("abort") ? (
        <Act isDanger label="Abort…" title="Undo the saga?" run={() => run("abort")} {...common}>
          <p>The steps that are done are undone, the last one first.</p>
          {field}
        </Act>
      ) : null}
      {has("finish") && stuck !== undefined ? (
        <Act
          isDanger
          label="Finish…"
          title="End the saga without another step?"
          run={() => run("finish")}
          {...common}
        >
          <p>Nothing more is done or undone. This cannot be taken back.</p>
          {field}
        </Act>
      ) : null}
    </>
  );
}

function Steps({ saga }: { saga: SagaDetail }) {
  return (
    <Card title="Steps that have begun">
      <Table
        label="Steps"
        head={["Step", "State", "Attempts", "Last failure"]}
        empty="None has begun."
        rows={saga.steps.map((step) => ({
          key: step.name,
          cells: [
            <code>{step.name}</code>,
            <StatePill state={step.state} />,
            step.attempts,
            failureOf(step),
          ],
        }))}
      />
    </Card>
  );
}

function failureOf({ failure }: StepRow): string {
  return failure === undefined ? "–" : `${failure.name}: ${failure.message}`;
}

function TimeLine({ saga }: { saga: SagaDetail }) {
  const startMs = Date.now() - saga.ageMs;
  return (
    <Card title="Time line">
      {saga.history.length === 0 ? <Empty>Nothing has happened.</Empty> : null}
      <ol class="timeline">
        {saga.history.map((moment, index) => (
          <li key={index} class={/stuck|fail/.test(moment.what) ? "stop" : ""}>
            <time title={new Date(startMs + moment.atMs).toLocaleString()}>
              + {(moment.atMs / 1000).toFixed(3)} s
            </time>
            <Moment of={moment} />
          </li>
        ))}
      </ol>
    </Card>
  );
}

function Moment({ of: { what, step, note, by } }: { of: MomentRow }) {
  return (
    <p>
      <strong>{what}</strong>
      {step === undefined ? null : (
        <>
          {" "}
          <code>{step}</code>
        </>
      )}
      {by === undefined ? null : ` by ${by}`}
      {note === undefined ? null : `: ${note}`}
    </p>
  );
}

function Values({ saga }: { saga: SagaDetail }) {
  const shown = [
    ["Input", saga.input] as const,
    ...saga.steps.map(({ name, result }) => [name, result] as const),
  ].filter(([, text]) => text !== undefined);
  if (shown.length === 0) return <Empty>There are none.</Empty>;
  return (
    <>
      {shown.map(([name, text = ""]) => (
        <div key={name}>
          <h3>{name}</h3>
          <Value value={{ bytes: text.length, text }} />
        </div>
      ))}
    </>
  );
}
