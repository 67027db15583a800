/** Records that pipelines have given up: by the reason of their failure, to be replayed or discarded. */

import { useMemo, useState } from "preact/hooks";
import type { DeadLetter, DeadLetters } from "../../client/processing.ts";
import { connectServer } from "../../client/processing.ts";
import { prettyJson } from "../json-text.ts";
import { useLoaded } from "../loading.ts";
import { Act, Card, Empty, Field, Problem } from "../parts.tsx";
import { go, linkTo } from "../place.ts";
import { BASE, getJson, token } from "../server.ts";
import { useShared } from "../store.ts";
import { formatCount, formatTime } from "../words.ts";

const EVERY_MS = 5000;
const SHOWN_MAX = 1000;
const SUGGESTED_MAX = 10;

function openLetters(stream: string, sent: string): DeadLetters {
  const options = sent === "" ? {} : { token: sent };
  const hapax = connectServer(BASE.href.replace(/\/$/, ""), {
    ...options,
    retry: { totalMs: 5000 },
  });
  return hapax.deadLetters(stream);
}

export function DeadLettersPage({ name }: { name: string | undefined }) {
  const [text, setText] = useState(name ?? "");
  return (
    <>
      <Card title="Which stream">
        <form
          class="toolbar"
          onSubmit={(event) => {
            event.preventDefault();
            go("dead-letters", text.startsWith("/") ? text : `/v1/stream/${text}`);
          }}
        >
          <Field
            label="Stream of dead letters"
            value={text}
            onInput={setText}
            placeholder="billing-dead"
            isRequired
          />
          <button type="submit" class="solid">
            Open
          </button>
        </form>
        {name === undefined ? <Suggestions /> : null}
      </Card>
      {name === undefined ? null : <Letters stream={name} />}
    </>
  );
}

/** Streams whose name says that they hold dead letters, of the first page of all streams. */
function Suggestions() {
  const { value } = useLoaded(
    (signal) =>
      getJson<{ streams: readonly { path: string }[]; next?: string }>(
        "/_hapax/streams",
        {},
        { signal },
      ),
    [],
  );
  const streams = value?.streams ?? [];
  const named = streams.filter(({ path }) => /dead|dlq/i.test(path));
  const found = named.slice(0, SUGGESTED_MAX);
  const isPart = value?.next !== undefined || named.length > found.length;
  return (
    <>
      {found.length === 0 ? null : (
        <ul class="list">
          {found.map(({ path }) => (
            <li key={path}>
              <a href={linkTo("dead-letters", path)}>{path}</a>
            </li>
          ))}
        </ul>
      )}
      {isPart ? (
        <p class="note">
          There may be more: only the names of the first {formatCount(streams.length)} streams were
          searched.
        </p>
      ) : null}
      {found.length === 0 && value !== undefined ? (
        <p class="note">
          A pipeline puts what fails in all its attempts into the stream that its option{" "}
          <code>deadLetter</code> names. No name of a stream here has "dead" or "dlq" in it.
        </p>
      ) : null}
    </>
  );
}

function Letters({ stream }: { stream: string }) {
  const sent = useShared(token);
  const letters = useMemo(() => openLetters(stream, sent), [stream, sent]);
  const { value, error, reload } = useLoaded(
    () => letters.list({ max: SHOWN_MAX }),
    [letters],
    EVERY_MS,
  );
  if (error !== undefined) return <Problem error={error} />;
  if (value === undefined) return <Empty>Reading…</Empty>;
  if (value.length === 0) return <Empty>No dead letters: nothing was given up.</Empty>;
  const groups = new Map<string, DeadLetter[]>();
  for (const letter of value) {
    const { fingerprint } = letter.reason;
    groups.set(fingerprint, [...(groups.get(fingerprint) ?? []), letter]);
  }
  const sorted = [...groups.values()].toSorted((one, other) => other.length - one.length);
  return (
    <>
      {value.length < SHOWN_MAX ? null : (
        <p class="note">
          These are the first {formatCount(SHOWN_MAX)}. There may be more: replay or discard some.
        </p>
      )}
      {sorted.map((same) => (
        <Reason
          key={same[0]?.reason.fingerprint ?? ""}
          same={same}
          letters={letters}
          onChange={reload}
        />
      ))}
    </>
  );
}

function Reason(props: {
  same: readonly DeadLetter[];
  letters: DeadLetters;
  onChange: () => void;
}) {
  const { same, letters, onChange } = props;
  const [first] = same;
  if (first === undefined) return null;
  const { fingerprint, message } = first.reason;
  const ids = same.map(({ id }) => id);
  return (
    <Card
      title={message}
      actions={
        <>
          <Act
            label="Replay…"
            title={`Replay ${formatCount(same.length)} records?`}
            run={() => letters.replay(ids)}
            onDone={onChange}
          >
            <p>
              Each is appended once more at the end of its stream, and its letter is marked as
              handled, in one transaction. Do this after you have fixed the cause.
            </p>
          </Act>
          <Act
            isDanger
            label="Discard…"
            title={`Discard ${formatCount(same.length)} records?`}
            run={() => letters.discard(ids)}
            onDone={onChange}
          >
            <p>
              They stay in the stream, but this list does not show them any more. This cannot be
              undone.
            </p>
          </Act>
        </>
      }
    >
      <p class="note">
        {formatCount(same.length)} with the fingerprint <code>{fingerprint}</code>
      </p>
      <ul class="letters">
        {same.slice(0, 20).map((letter) => (
          <Letter key={letter.id} letter={letter} />
        ))}
      </ul>
      {same.length > 20 ? <p class="note">and {formatCount(same.length - 20)} more</p> : null}
    </Card>
  );
}

function Letter({ letter }: { letter: DeadLetter }) {
  const { stream, offset, attempts, at, recordText, recordBytes } = letter;
  return (
    <li>
      <p>
        <a href={linkTo("stream", stream)}>{stream}</a> at <code>{offset}</code>, given up after{" "}
        {attempts} attempts, {formatTime(at)}
      </p>
      <pre>
        {recordText === undefined
          ? `${String(recordBytes ?? "some")} bytes`
          : prettyJson(recordText.slice(0, 2000))}
      </pre>
    </li>
  );
}
