/** All streams, found by the beginning of their paths, and a new one. */

import { STREAM_FORKED_FROM, STREAM_KEY_WINDOW, STREAM_TTL } from "../../protocol/header-names.ts";
import { useState } from "preact/hooks";
import { useLoaded } from "../loading.ts";
import { Pager, usePaging } from "../paging.tsx";
import { Act, Card, Choice, Empty, Field, Pill, Problem, Table } from "../parts.tsx";
import { go, linkTo } from "../place.ts";
import { call, getJson } from "../server.ts";
import { bytesOf, formatBytes, formatTime } from "../words.ts";

interface Listed {
  readonly path: string;
  readonly contentType: string;
  readonly nextOffset: string;
  readonly closed: boolean;
  readonly createdAt: string;
}

interface Page {
  readonly streams: readonly Listed[];
  readonly next?: string;
}

const ROOT = "/v1/stream/";
const LIMIT = "100";
const EVERY_MS = 3000;

export function StreamsPage() {
  const [text, setText] = useState("");
  const paging = usePaging();
  const prefix = text === "" || text.startsWith("/") ? text : `${ROOT}${text}`;
  const { value, error, reload } = useLoaded(
    (signal) =>
      getJson<Page>("/_hapax/streams", { prefix, after: paging.from, limit: LIMIT }, { signal }),
    [prefix, paging.from],
    EVERY_MS,
  );
  return (
    <Card title="All streams" actions={<NewStream onDone={reload} />}>
      <div class="toolbar">
        <input
          type="search"
          class="search"
          placeholder="Search by prefix: orders/2026"
          aria-label="Search streams by the prefix of their path"
          value={text}
          onInput={(event) => {
            setText(event.currentTarget.value);
            paging.restart();
          }}
        />
      </div>
      {error === undefined ? null : <Problem error={error} />}
      {value === undefined ? null : <Found streams={value.streams} prefix={prefix} />}
      <Pager paging={paging} next={value?.next} />
    </Card>
  );
}

function Found({ streams, prefix }: { streams: readonly Listed[]; prefix: string }) {
  if (streams.length === 0 && prefix === "") {
    return (
      <Empty>
        There is no stream yet. Create one here, or with{" "}
        <code>curl -X PUT …/v1/stream/orders -H 'Content-Type: application/json'</code>
      </Empty>
    );
  }
  return (
    <Table
      label="Streams"
      head={["Path", "Type", "Written", "State", "Created"]}
      empty={`No stream begins with ${prefix}`}
      rows={streams.map(({ path, contentType, nextOffset, closed, createdAt }) => ({
        key: path,
        cells: [
          <a href={linkTo("stream", path)}>{path}</a>,
          contentType,
          formatBytes(bytesOf(nextOffset)),
          closed ? <Pill tone="calm">closed</Pill> : <Pill tone="good">open</Pill>,
          formatTime(createdAt),
        ],
      }))}
    />
  );
}

function NewStream({ onDone }: { onDone: () => void }) {
  const [path, setPath] = useState("");
  const [type, setType] = useState("application/json");
  const [ttl, setTtl] = useState("");
  const [window, setWindow] = useState("");
  const [source, setSource] = useState("");
  const whole = path.startsWith("/") ? path : `${ROOT}${path}`;
  const run = async (): Promise<void> => {
    const headers: Record<string, string> = { "Content-Type": type, "If-None-Match": "*" };
    if (ttl !== "") headers[STREAM_TTL] = ttl;
    if (window !== "") headers[STREAM_KEY_WINDOW] = window;
    if (source !== "") {
      delete headers["Content-Type"];
      headers[STREAM_FORKED_FROM] = source.split("/").map(encodeURIComponent).join("/");
    }
    await call("PUT", whole, { headers });
    go("stream", whole);
  };
  return (
    <Act label="New stream…" title="New stream" run={run} onDone={onDone}>
      <Field
        label="Path"
        value={path}
        onInput={setPath}
        placeholder="orders"
        hint={`Below ${ROOT} unless it begins with a slash.`}
        isRequired
      />
      <Choice
        label="Content type"
        value={type}
        onChange={setType}
        options={[
          ["application/json", "JSON records"],
          ["text/plain", "Text"],
          ["application/octet-stream", "Bytes"],
        ]}
      />
      <Field
        label="Expires after this many seconds without use"
        value={ttl}
        onInput={setTtl}
        kind="number"
        placeholder="never"
      />
      <Field
        label="Remembers idempotency keys for this many seconds"
        value={window}
        onInput={setWindow}
        kind="number"
        placeholder="the default of the server"
      />
      <Field
        label="Fork of"
        value={source}
        onInput={setSource}
        placeholder="/v1/stream/other"
        hint="The new stream begins with the records of this one, and has its type."
      />
    </Act>
  );
}
