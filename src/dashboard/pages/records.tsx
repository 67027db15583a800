/** The records of a stream: from any offset, as JSON, as they are stored, or as bytes; and live. */

import { useEffect, useRef, useState } from "preact/hooks";
import { hexLines, prettyJson } from "../json-text.ts";
import { Card, Choice, Empty, Field, Pill, Problem } from "../parts.tsx";
import { followPages, readPage, type ReadPage, type ShownRecord, type Source } from "../reading.ts";
import type { Refusal } from "../refusal.ts";
import { bytesOf, formatBytes, offsetOf } from "../words.ts";
import type { Described } from "./stream.tsx";

type Form = "pretty" | "raw" | "bytes";

const RECORDS_MAX = 200;
/** What is read of the end when the page opens. */
const LAST_BYTES = 16 * 1024;
const CHARS_MAX = 2000;
const HEX_BYTES_MAX = 4096;
const text = new TextDecoder();

interface Shown {
  readonly records: readonly ShownRecord[];
  readonly next: string;
  readonly isUpToDate: boolean;
}

/** What is shown, and how to get more of it. */
function useRecords(source: Source, start: string) {
  const [shown, setShown] = useState<Shown>({ records: [], next: start, isUpToDate: false });
  const [error, setError] = useState<unknown>(undefined);
  const [outage, setOutage] = useState<Refusal | undefined>(undefined);
  const [isLive, setLive] = useState(false);
  /** The newest records were asked for: they are at the end of the list. */
  const [isLatest, setLatest] = useState(false);
  const ending = useRef(new AbortController());
  const take = (old: readonly ShownRecord[], page: ReadPage): Shown => ({
    records: [...old, ...page.records].slice(-RECORDS_MAX),
    next: page.next,
    isUpToDate: page.isUpToDate,
  });
  const begin = (): AbortSignal => {
    ending.current.abort();
    ending.current = new AbortController();
    setError(undefined);
    setOutage(undefined);
    return ending.current.signal;
  };
  const read = (offset: string, what: "from" | "more" | "latest"): void => {
    const signal = begin();
    setLive(false);
    setLatest(what === "latest");
    readPage(source, { offset }, signal).then(
      (page) => setShown((old) => take(what === "more" ? old.records : [], page)),
      (thrown: unknown) => {
        if (!signal.aborted) setError(thrown);
      },
    );
  };
  const follow = (): void => {
    const signal = begin();
    setLive(true);
    const add = (page: ReadPage): void => setShown((old) => take(old.records, page));
    followPages(source, shown.next, signal, add, setOutage).then(
      () => {
        if (!signal.aborted) setLive(false);
      },
      (thrown: unknown) => {
        setLive(false);
        setError(thrown);
      },
    );
  };
  const stop = (): void => {
    begin();
    setLive(false);
  };
  useEffect(() => {
    read(start, "latest");
    return () => {
      ending.current.abort();
    };
  }, [source.life]);
  return { shown, error, outage, isLive, isLatest, read, follow, stop };
}

export function Records({ stream }: { stream: Described }) {
  const isJson = /^application\/json\b/i.test(stream.contentType);
  const isText = isJson || /^text\//i.test(stream.contentType);
  // What was trimmed is refused.
  const earliest = bytesOf(stream.earliestOffset);
  const latest = offsetOf(Math.max(earliest, bytesOf(stream.nextOffset) - LAST_BYTES));
  const { path, life } = stream;
  const reader = useRecords({ path, life, isJson }, latest);
  const [form, setForm] = useState<Form>(isJson ? "pretty" : isText ? "raw" : "bytes");
  const [from, setFrom] = useState("");
  const { shown, error, outage, isLive } = reader;
  return (
    <Card
      title="Records"
      actions={
        <>
          {outage === undefined ? null : <Pill tone="warn">No answer, trying again</Pill>}
          <button
            type="button"
            class={isLive ? "solid live" : ""}
            aria-pressed={isLive}
            onClick={isLive ? reader.stop : reader.follow}
          >
            {isLive ? "Following live" : "Follow live"}
          </button>
        </>
      }
    >
      <form
        class="toolbar"
        onSubmit={(event) => {
          event.preventDefault();
          reader.read(from === "" ? "-1" : from, "from");
        }}
      >
        <Field label="From offset" value={from} onInput={setFrom} placeholder="the beginning" />
        <button type="submit">Read</button>
        <button type="button" onClick={() => reader.read(latest, "latest")}>
          Latest
        </button>
        <button
          type="button"
          disabled={shown.isUpToDate}
          onClick={() => reader.read(shown.next, "more")}
        >
          Read on
        </button>
        <Choice
          label="Show as"
          value={form}
          onChange={(value) => setForm(value as Form)}
          options={[
            ...(isJson ? [["pretty", "JSON, with lines"] as const] : []),
            ["raw", "text as stored"],
            ["bytes", "bytes"],
          ]}
        />
      </form>
      {error === undefined ? null : <Problem error={error} />}
      <RecordList records={shown.records} form={form} isAtEnd={isLive || reader.isLatest} />
      <p class="note">
        Next offset <code>{shown.next}</code>
        {shown.isUpToDate ? ", which is the tail." : ", there is more."}
      </p>
    </Card>
  );
}

function RecordList(props: {
  records: readonly ShownRecord[];
  form: Form;
  /** The list is scrolled to its end, where the newest record is. */
  isAtEnd: boolean;
}) {
  const list = useRef<HTMLOListElement>(null);
  const { records, form, isAtEnd } = props;
  useEffect(() => {
    const { current } = list;
    if (isAtEnd && current !== null) current.scrollTop = current.scrollHeight;
  }, [records, isAtEnd]);
  if (records.length === 0) return <Empty>No records here.</Empty>;
  return (
    <ol class="records" ref={list} tabIndex={0} aria-label="Records">
      {records.map((record) => (
        <RecordItem key={record.offset} record={record} form={form} />
      ))}
    </ol>
  );
}

function RecordItem({ record, form }: { record: ShownRecord; form: Form }) {
  const [isWhole, setWhole] = useState(false);
  const { bytes, offset } = record;
  const all =
    form === "bytes"
      ? hexLines(bytes, isWhole ? Infinity : HEX_BYTES_MAX)
      : form === "pretty"
        ? prettyJson(text.decode(bytes))
        : text.decode(bytes);
  const isLong = all.length > CHARS_MAX && form !== "bytes";
  const shown = isLong && !isWhole ? all.slice(0, CHARS_MAX) : all;
  return (
    <li>
      <code class="offset" title={offset}>
        {bytesOf(offset)}
      </code>
      <pre>{shown}</pre>
      {(isLong || bytes.length > HEX_BYTES_MAX) && !isWhole ? (
        <button type="button" class="quiet" onClick={() => setWhole(true)}>
          Show all {formatBytes(bytes.length)}
        </button>
      ) : null}
    </li>
  );
}
