/** Where a stream begins, and what it keeps: a cut, and a rule. */

import { STREAM_RETENTION } from "../../protocol/header-names.ts";
import { useState } from "preact/hooks";
import { Act, Card, Choice, Facts, Field } from "../parts.tsx";
import { call } from "../server.ts";
import { bytesOf, formatBytes, formatSpan } from "../words.ts";
import type { Described } from "./stream.tsx";

export function Retention({ stream, onChange }: { stream: Described; onChange: () => void }) {
  const { earliestOffset, retention, compactKey } = stream;
  const gone = bytesOf(earliestOffset);
  return (
    <Card
      title="What it keeps"
      actions={
        <>
          <SetRule stream={stream} onDone={onChange} />
          <Trim stream={stream} onDone={onChange} />
        </>
      }
    >
      <Facts
        of={[
          ["Begins at", <code>{earliestOffset}</code>],
          ["Trimmed so far", gone === 0 ? "nothing" : formatBytes(gone)],
          // What a changelog keeps is said below.
          [
            "Rule",
            compactKey !== undefined && retention === undefined ? undefined : wordsOf(retention),
          ],
          ["Changelog", compactKey === undefined ? undefined : <Changelog rule={compactKey} />],
        ]}
      />
    </Card>
  );
}

/** The members of a rule such as `seconds=86400, bytes=1000, needed=drop`. A member without a value has an empty one. */
function membersOf(rule: string | undefined): ReadonlyMap<string, string> {
  const members = (rule ?? "").split(",").map((member) => member.trim().split("="));
  return new Map(members.map(([name = "", value = ""]) => [name, value]));
}

function wordsOf(rule: string | undefined): string {
  const members = membersOf(rule);
  const [seconds, bytes] = [members.get("seconds"), members.get("bytes")];
  const parts = [
    ...(seconds === undefined ? [] : [`what is younger than ${formatSpan(Number(seconds))}`]),
    ...(bytes === undefined ? [] : [`the newest ${formatBytes(Number(bytes))}`]),
  ];
  if (parts.length === 0) return "keeps everything";
  const rest = members.has("needed") ? ", also if a reader needs more" : "";
  return `keeps ${parts.join(", and of it ")}${rest}`;
}

/** A rule such as `id, tombstone=value, lag=60`. */
function Changelog({ rule }: { rule: string }) {
  const members = membersOf(rule);
  const path = [...members.keys()][0] ?? "";
  const tombstone = members.get("tombstone");
  const lag = Number(members.get("lag") ?? 0);
  return (
    <>
      keeps the newest record of each <code>{path}</code>
      {tombstone === undefined ? null : (
        <>
          ; one without <code>{tombstone}</code> deletes it
        </>
      )}
      ; records stay for {lag % 60 === 0 ? formatSpan(lag) : `${String(lag)} s`} at least
    </>
  );
}

/** What may go although a group, a subscription or a fork still needs it. */
function Needed({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  return (
    <Choice
      label="What groups, subscriptions and forks still need"
      value={value}
      onChange={onChange}
      options={[
        ["", "stays"],
        ["drop", "goes too"],
      ]}
    />
  );
}

function Trim({ stream, onDone }: { stream: Described; onDone: () => void }) {
  const [before, setBefore] = useState("");
  const [needed, setNeeded] = useState("");
  const { path, nextOffset } = stream;
  const query = { stream: path, before, ...(needed === "" ? {} : { needed }) };
  return (
    <Act
      isDanger
      label="Trim…"
      title="Trim this stream?"
      typed={path.split("/").at(-1) ?? path}
      onOpen={() => {
        setBefore(nextOffset);
        setNeeded("");
      }}
      run={() => call("POST", ["_hapax", "trim"], { query })}
      onDone={onDone}
    >
      <p>
        What is before the offset will be gone, and its room is used again. Offsets do not change.
        This cannot be undone.
      </p>
      <Field
        label="Trim what is before"
        value={before}
        onInput={setBefore}
        hint="The tail trims everything. A cut is between two appends."
        isRequired
      />
      <Needed value={needed} onChange={setNeeded} />
    </Act>
  );
}

function SetRule({ stream, onDone }: { stream: Described; onDone: () => void }) {
  const [seconds, setSeconds] = useState("");
  const [bytes, setBytes] = useState("");
  const [needed, setNeeded] = useState("");
  const { path, retention } = stream;
  const run = (): Promise<Response> => {
    const members = [
      ...(seconds === "" ? [] : [`seconds=${seconds}`]),
      ...(bytes === "" ? [] : [`bytes=${bytes}`]),
      ...(needed === "" || seconds + bytes === "" ? [] : [`needed=${needed}`]),
    ];
    const rule = members.length === 0 ? "none" : members.join(", ");
    return call("PUT", ["_hapax", "retention"], {
      query: { stream: path },
      headers: { [STREAM_RETENTION]: rule },
    });
  };
  return (
    <Act
      isDanger
      label="Set the rule…"
      title="What shall this stream keep?"
      onOpen={() => {
        const members = membersOf(retention);
        setSeconds(members.get("seconds") ?? "");
        setBytes(members.get("bytes") ?? "");
        setNeeded(members.get("needed") ?? "");
      }}
      run={run}
      onDone={onDone}
    >
      <p>
        What is older, or more, goes by itself, and cannot be brought back. Leave both fields empty
        to keep everything.
      </p>
      <Field
        label="Seconds to keep"
        kind="number"
        value={seconds}
        onInput={setSeconds}
        placeholder="604800"
      />
      <Field
        label="Newest bytes to keep"
        kind="number"
        value={bytes}
        onInput={setBytes}
        placeholder="1000000000"
      />
      <Needed value={needed} onChange={setNeeded} />
    </Act>
  );
}
