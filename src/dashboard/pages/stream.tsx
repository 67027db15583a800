/** One stream: its records, its writers, its window of keys, and what hangs on it. */

import { IDEMPOTENCY_KEY, STREAM_CLOSED } from "../../protocol/header-names.ts";
import { useRef } from "preact/hooks";
import { useLoaded } from "../loading.ts";
import { Pager, usePaging } from "../paging.tsx";
import { Act, Card, Empty, Facts, Pill, Problem, Table } from "../parts.tsx";
import { go, linkTo } from "../place.ts";
import { call, getJson, newKey } from "../server.ts";
import { bytesOf, formatBytes, formatCount, formatSpan, formatTime } from "../words.ts";
import { Composer } from "./composer.tsx";
import { Records } from "./records.tsx";
import { Retention } from "./retention.tsx";
import { type Subscribed, SubscriptionTable } from "./subscriptions.tsx";

export interface Described {
  readonly path: string;
  readonly contentType: string;
  readonly nextOffset: string;
  readonly earliestOffset: string;
  readonly closed: boolean;
  readonly life: string;
  readonly createdAt: string;
  readonly lastUsedAt: string;
  readonly ttlSeconds?: number;
  readonly expiresAt?: string;
  readonly retention?: string;
  readonly compactKey?: string;
  readonly keys: {
    readonly count: number;
    readonly max: number;
    readonly windowSeconds: number;
    readonly overflow: "evict" | "reject";
    readonly fromContent: boolean;
  };
  readonly forkedFrom?: { readonly stream: string; readonly offset: string };
  readonly forks: readonly string[];
}

const EVERY_MS = 2000;

export function StreamPage({ name = "" }: { name: string | undefined }) {
  const { value, error, reload } = useLoaded(
    (signal) => getJson<Described>("/_hapax/stream", { stream: name }, { signal }),
    [name],
    EVERY_MS,
  );
  return (
    <>
      <p class="crumbs">
        <a href={linkTo("streams")}>Streams</a> <span aria-hidden="true">/</span>{" "}
        <code class="path">{name}</code>
      </p>
      {error === undefined ? null : <Problem error={error} />}
      {value === undefined ? null : (
        <>
          <Summary stream={value} onChange={reload} />
          <Records stream={value} />
          {value.closed ? null : <Composer stream={value} onChange={reload} />}
          <Producers stream={name} />
          <Keys keys={value.keys} />
          <Retention stream={value} onChange={reload} />
          <Forks stream={value} />
          <Following stream={name} />
        </>
      )}
    </>
  );
}

function Summary({ stream, onChange }: { stream: Described; onChange: () => void }) {
  const { closed, ttlSeconds, expiresAt } = stream;
  const expiry =
    ttlSeconds !== undefined
      ? `${formatSpan(ttlSeconds)} after its last use, which was ${formatTime(stream.lastUsedAt)}`
      : expiresAt === undefined
        ? "never"
        : formatTime(expiresAt);
  return (
    <Card
      title="About it"
      actions={
        <>
          <Close path={stream.path} isClosed={closed} onDone={onChange} />
          <Delete path={stream.path} />
        </>
      }
    >
      <Facts
        of={[
          ["State", closed ? <Pill tone="calm">closed</Pill> : <Pill tone="good">open</Pill>],
          ["Type", stream.contentType],
          ["Size", formatBytes(bytesOf(stream.nextOffset) - bytesOf(stream.earliestOffset))],
          ["Tail", <code>{stream.nextOffset}</code>],
          ["Created", formatTime(stream.createdAt)],
          ["Expires", expiry],
          ["Life", <code>{stream.life}</code>],
        ]}
      />
    </Card>
  );
}

function Close(props: { path: string; isClosed: boolean; onDone: () => void }) {
  return (
    <Act
      label="Close…"
      title="Close this stream?"
      isDisabled={props.isClosed}
      run={() => call("POST", props.path, { headers: { [STREAM_CLOSED]: "true" } })}
      onDone={props.onDone}
    >
      <p>
        <code class="path">{props.path}</code> will take no more records, and its readers end. It
        cannot be opened again.
      </p>
    </Act>
  );
}

function Delete({ path }: { path: string }) {
  const key = useRef("");
  const last = path.split("/").at(-1) ?? path;
  return (
    <Act
      isDanger
      label="Delete…"
      title="Delete this stream?"
      typed={last}
      onOpen={() => {
        key.current = newKey();
      }}
      run={() => call("DELETE", path, { headers: { [IDEMPOTENCY_KEY]: key.current } })}
      onDone={() => {
        go("streams");
      }}
    >
      <p>
        All records and writers of <code class="path">{path}</code> will be gone. This cannot be
        undone.
      </p>
    </Act>
  );
}

interface Producer {
  readonly producerId: string;
  readonly epoch: number;
  readonly seq: number;
  readonly nextOffset?: string;
  readonly session: boolean;
}

function Producers({ stream }: { stream: string }) {
  const paging = usePaging();
  const { value, error, reload } = useLoaded(
    (signal) =>
      getJson<{ producers: readonly Producer[]; next?: string }>(
        "/_hapax/producers",
        { stream, after: paging.from, limit: "50" },
        { signal },
      ),
    [stream, paging.from],
    EVERY_MS,
  );
  return (
    <Card title="Producers">
      {error === undefined ? null : <Problem error={error} />}
      {value === undefined ? null : (
        <Table
          label="Producers"
          head={["Producer", "Epoch", "Sequence", "Last append ends at", ""]}
          empty="No producer has written to this stream: its appends have keys, or no identity."
          rows={value.producers.map(({ producerId, epoch, seq, nextOffset, session }) => ({
            key: producerId,
            cells: [
              <code>{producerId}</code>,
              session ? `${epoch} (session)` : String(epoch),
              formatCount(seq),
              nextOffset === undefined ? "" : <code>{nextOffset}</code>,
              <ResetProducer stream={stream} id={producerId} onDone={reload} />,
            ],
          }))}
        />
      )}
      <Pager paging={paging} next={value?.next} />
    </Card>
  );
}

function ResetProducer(props: { stream: string; id: string; onDone: () => void }) {
  const key = useRef("");
  const run = (): Promise<Response> =>
    call("DELETE", ["_hapax", "producers", props.id], {
      query: { stream: props.stream },
      headers: { [IDEMPOTENCY_KEY]: key.current },
    });
  return (
    <Act
      isDanger
      label="Forget…"
      title="Forget this producer?"
      onOpen={() => {
        key.current = newKey();
      }}
      run={run}
      onDone={props.onDone}
    >
      <p>
        The stream forgets the epoch and the sequence of <code>{props.id}</code>. Do this only when
        none of its old writers runs: a late copy of its first append would be stored again.
      </p>
    </Act>
  );
}

function Keys({ keys }: { keys: Described["keys"] }) {
  const { count, max, windowSeconds, overflow, fromContent } = keys;
  const share = Math.round((count / max) * 100);
  return (
    <Card title="Window of keys" actions={<a href={linkTo("look-up")}>Look a key up</a>}>
      <div class="fill">
        <meter
          min={0}
          max={max}
          high={max * 0.9}
          value={count}
          aria-label={`${count} of ${max} keys`}
        />
        <span>
          <b>{formatCount(count)}</b> of {formatCount(max)} keys, {share} %
        </span>
      </div>
      <Facts
        of={[
          ["Remembered for", formatSpan(windowSeconds)],
          ["When full", overflow === "evict" ? "forgets the oldest" : "refuses new keys"],
          ["Without a key", fromContent ? "the content is the key" : "stored each time"],
        ]}
      />
    </Card>
  );
}

function Forks({ stream: { forkedFrom, forks } }: { stream: Described }) {
  if (forkedFrom === undefined && forks.length === 0) return null;
  return (
    <Card title="Forks">
      {forkedFrom === undefined ? null : (
        <p>
          Left <a href={linkTo("stream", forkedFrom.stream)}>{forkedFrom.stream}</a> at{" "}
          <code>{forkedFrom.offset}</code>
        </p>
      )}
      <ul class="list">
        {forks.map((path) => (
          <li key={path}>
            <a href={linkTo("stream", path)}>{path}</a>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Following({ stream }: { stream: string }) {
  const { value, error, reload } = useLoaded(
    (signal) =>
      getJson<{ subscriptions: readonly Subscribed[] }>(
        "/_hapax/subscriptions",
        { stream },
        { signal },
      ),
    [stream],
    EVERY_MS * 2,
  );
  return (
    <Card title="Subscriptions that follow it">
      {error === undefined ? null : <Problem error={error} />}
      {value === undefined ? null : value.subscriptions.length === 0 ? (
        <Empty>None.</Empty>
      ) : (
        <SubscriptionTable subscriptions={value.subscriptions} onChange={reload} />
      )}
    </Card>
  );
}
