/** The outbox: how far its relays are behind, and the events that wait or were given up. */

import { useState } from "preact/hooks";
import type { HeldRow, OverviewView, RelayView, Rows } from "../../toolkit/console/views.ts";
import { Act, Card, Choice, Empty, Facts, Field, Pill, Problem, Table } from "../parts.tsx";
import { linkTo } from "../place.ts";
import { useRepeated } from "../repeating.ts";
import { formatBytes, formatCount, formatTime } from "../words.ts";
import { act, ask } from "./api.ts";
import { Hidden } from "./entries.tsx";
import { useOverview } from "./overview.tsx";
import { span, Value } from "./parts.tsx";

const STATES = [
  ["dead", "Dead: given up"],
  ["waiting", "Waiting behind a failure"],
] as const;
const EVERY_MS = 5000;

export function OutboxPage({ name }: { name: string | undefined }) {
  const { value, error } = useOverview();
  if (error !== undefined && value === undefined) return <Problem error={error} />;
  if (value === undefined) return <Empty>Reading…</Empty>;
  if (!value.hasOutbox) return <Empty>This ledger has no outbox.</Empty>;
  const relay = value.relays.find((one) => one.relay === name) ?? value.relays[0];
  return (
    <>
      <Relays relays={value.relays} />
      {relay === undefined ? null : <Held key={relay.relay} relay={relay.relay} about={value} />}
    </>
  );
}

function Relays({ relays }: { relays: readonly RelayView[] }) {
  return (
    <Card title="Relays">
      <Table
        label="Relays"
        head={["Relay", "Now", "Behind", "Waiting", "Dead"]}
        empty="No relay has run on this database yet."
        rows={relays.map(({ relay, isHeld, lagMs, slotBytes, waiting, dead }) => ({
          key: relay,
          cells: [
            <a href={linkTo("outbox", relay)}>{relay}</a>,
            <Pill tone={isHeld ? "good" : "warn"}>{isHeld ? "runs" : "no process runs it"}</Pill>,
            lagMs === 0 ? "up to date" : behind(lagMs, slotBytes),
            formatCount(waiting),
            formatCount(dead),
          ],
        }))}
      />
    </Card>
  );
}

function behind(lagMs: number, slotBytes: number | undefined): string {
  return slotBytes === undefined ? span(lagMs) : `${span(lagMs)}, ${formatBytes(slotBytes)}`;
}

function Held({ relay, about }: { relay: string; about: OverviewView }) {
  const [state, setState] = useState<string>("dead");
  const [text, setText] = useState("");
  const [key, setKey] = useState("");
  const [fingerprint, setFingerprint] = useState<string | undefined>(undefined);
  const [isAsked, setAsked] = useState(false);
  const query = {
    relay,
    state,
    key: key === "" ? undefined : key,
    fingerprint,
    values: isAsked ? "yes" : undefined,
  };
  const { value, error, reload } = useRepeated(
    (signal) => ask<Rows<HeldRow> & { readonly hasMore: boolean }>("held", query, signal),
    [JSON.stringify(query)],
    EVERY_MS,
  );
  const rows = value?.rows ?? [];
  return (
    <Card
      title={`Held events of ${relay}`}
      actions={
        <Acts relay={relay} rows={state === "dead" ? rows : []} about={about} onChange={reload} />
      }
    >
      <form
        class="toolbar"
        onSubmit={(event) => {
          event.preventDefault();
          setKey(text);
        }}
      >
        <Choice label="Which" value={state} options={STATES} onChange={setState} />
        <Field label="Key of the events" value={text} onInput={setText} placeholder="every key" />
        <button type="submit">Filter</button>
        {fingerprint === undefined ? null : (
          <button type="button" onClick={() => setFingerprint(undefined)}>
            Every reason
          </button>
        )}
      </form>
      {error === undefined ? null : <Problem error={error} />}
      {value !== undefined && rows.length === 0 ? <Empty>There is none.</Empty> : null}
      {rows.length > 0 && !isAsked ? (
        <Hidden may={about.maySeeValues} show={() => setAsked(true)} />
      ) : null}
      <ul class="letters">
        {rows.map((row) => (
          <Letter key={row.id} row={row} narrow={setFingerprint} />
        ))}
      </ul>
      {value?.hasMore === true ? (
        <p class="note">There are more. Act on these, or narrow the list by a key or a reason.</p>
      ) : null}
    </Card>
  );
}

function Letter({ row, narrow }: { row: HeldRow; narrow: (fingerprint: string) => void }) {
  const { id, topic, key, addedAtMs, attempts, dueInMs, fingerprint, message, payload } = row;
  return (
    <li data-letter={id}>
      <Facts
        of={[
          ["Event", <code>{id}</code>],
          ["Topic", topic],
          ["Key", key],
          ["Added", formatTime(new Date(addedAtMs).toISOString())],
          ["Attempts", attempts],
          ["Tried again in", dueInMs > 0 ? span(dueInMs) : undefined],
        ]}
      />
      {message === undefined ? null : <pre>{message}</pre>}
      {fingerprint === undefined ? null : (
        <button type="button" class="quiet" onClick={() => narrow(fingerprint)}>
          Only those with this reason
        </button>
      )}
      {payload === undefined ? null : <Value value={payload} />}
    </li>
  );
}

function Acts(props: {
  relay: string;
  rows: readonly HeldRow[];
  about: OverviewView;
  onChange: () => void;
}) {
  const { relay, rows, about, onChange } = props;
  if (rows.length === 0) return null;
  const ids = rows.map(({ id }) => id);
  const all = `these ${formatCount(ids.length)} events`;
  return (
    <>
      {about.acts.includes("letters.replay") ? (
        <Act
          label="Replay…"
          title={`Replay ${all}?`}
          run={() => act({ act: "letters.replay", relay, ids })}
          onDone={onChange}
        >
          <p>
            The relay tries them again, as if it never had. Do this after you have fixed the cause.
          </p>
        </Act>
      ) : null}
      {about.acts.includes("letters.discard") ? (
        <Act
          isDanger
          label="Discard…"
          title={`Discard ${all}?`}
          typed="discard"
          run={() => act({ act: "letters.discard", relay, ids })}
          onDone={onChange}
        >
          <p>They are deleted and never published. This cannot be undone.</p>
        </Act>
      ) : null}
    </>
  );
}
