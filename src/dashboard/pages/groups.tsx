/** Groups: their members, what each holds, and how far they are behind. */

import { IDEMPOTENCY_KEY, STREAM_UP_TO_DATE } from "../../protocol/header-names.ts";
import { useEffect, useRef, useState } from "preact/hooks";
import { recordsIn } from "../json-text.ts";
import { useLoaded } from "../loading.ts";
import { Pager, usePaging } from "../paging.tsx";
import { Act, Card, Choice, Facts, Field, Pill, Problem, Table } from "../parts.tsx";
import { linkTo } from "../place.ts";
import { call, getJson, newKey } from "../server.ts";
import { bytesOf, countOf, formatBytes, formatCount, formatSpan, formatTime } from "../words.ts";

interface ListedGroup {
  readonly group: string;
  readonly members: number;
  readonly streams: number;
  readonly lag: number;
}

interface Cursor {
  readonly stream: string;
  readonly life: string;
  readonly offset: string;
  readonly nextOffset: string;
  readonly lag: number;
  readonly token: number;
  readonly member?: string;
  readonly handOver: boolean;
  readonly finished: boolean;
  /** Of a group of jobs: those that were given and are not done, also those that wait for another attempt. */
  readonly openJobs?: number;
  /** Those of them without a worker. */
  readonly waitingJobs?: number;
  readonly attemptMax?: number;
}

interface Group {
  readonly group: string;
  readonly pattern?: string;
  readonly start: string;
  readonly leaseMs: number;
  readonly jobs?: boolean;
  readonly createdAt: string;
  readonly members: readonly {
    readonly member: string;
    readonly leases: number;
    readonly expiresInMs: number;
  }[];
  readonly cursors: readonly Cursor[];
  readonly next?: string;
}

const EVERY_MS = 2000;
/** A stream that has more, and whose offset has not moved for so long, is stuck. */
const STUCK_MS = 30_000;

export function GroupsPage({ name }: { name: string | undefined }) {
  return name === undefined ? <AllGroups /> : <OneGroup name={name} />;
}

function AllGroups() {
  const paging = usePaging();
  const { value, error } = useLoaded(
    (signal) =>
      getJson<{ groups: readonly ListedGroup[]; next?: string }>(
        "/_hapax/groups",
        { after: paging.from, limit: "100" },
        { signal },
      ),
    [paging.from],
    EVERY_MS,
  );
  return (
    <Card title="All groups">
      {error === undefined ? null : <Problem error={error} />}
      {value === undefined ? null : (
        <Table
          label="Groups"
          head={["Group", "Members", "Streams", "Behind"]}
          empty="There is no group. Consumers of hapax/processing make one."
          rows={value.groups.map(({ group, members, streams, lag }) => ({
            key: group,
            cells: [
              <a href={linkTo("groups", group)}>{group}</a>,
              formatCount(members),
              formatCount(streams),
              <Lag bytes={lag} />,
            ],
          }))}
        />
      )}
      <Pager paging={paging} next={value?.next} />
    </Card>
  );
}

function Lag({ bytes, records }: { bytes: number; records?: string | undefined }) {
  if (bytes === 0) return <Pill tone="good">up to date</Pill>;
  return (
    <>
      {formatBytes(bytes)}
      {records === undefined ? "" : `, ${records}`}
    </>
  );
}

function OneGroup({ name }: { name: string }) {
  const paging = usePaging();
  const { value, error, reload } = useLoaded(
    (signal) =>
      getJson<Group>(["_hapax", "groups", name], { after: paging.from, limit: "200" }, { signal }),
    [name, paging.from],
    EVERY_MS,
  );
  return (
    <>
      <p class="crumbs">
        <a href={linkTo("groups")}>Groups</a> <span aria-hidden="true">/</span> <code>{name}</code>
      </p>
      {error === undefined ? null : <Problem error={error} />}
      {value === undefined ? null : (
        <>
          <About group={value} onChange={reload} />
          <Members group={value} />
          {value.jobs === true ? (
            <JobStreams group={value} onChange={reload} />
          ) : (
            <Cursors group={value} onChange={reload} />
          )}
          <Pager paging={paging} next={value.next} />
        </>
      )}
    </>
  );
}

function About({ group, onChange }: { group: Group; onChange: () => void }) {
  const lag = group.cursors.reduce((sum, cursor) => sum + cursor.lag, 0);
  return (
    <Card title="About it" actions={<Reset group={group.group} onDone={onChange} />}>
      <Facts
        of={[
          ["Gives", group.jobs === true ? "single records: jobs" : "whole streams"],
          ["Follows", group.pattern ?? countOf(group.cursors.length, "named stream")],
          ["Began at", group.start],
          ["Lease", formatSpan(group.leaseMs / 1000)],
          ["Created", formatTime(group.createdAt)],
          ["Behind", <Lag bytes={lag} />],
        ]}
      />
    </Card>
  );
}

function Members({ group: { members, leaseMs, jobs = false } }: { group: Group }) {
  return (
    <Card title={jobs ? "Workers" : "Members"}>
      <Table
        label={jobs ? "Workers" : "Members"}
        head={jobs ? ["Worker", "Counts as live for"] : ["Member", "Leases", "Counts as live for"]}
        empty="No member: these streams are not processed now."
        rows={members.map(({ member, leases, expiresInMs }) => ({
          key: member,
          cells: [
            <code>{member}</code>,
            ...(jobs ? [] : [formatCount(leases)]),
            expiresInMs === 0 ? (
              <Pill tone="bad">silent</Pill>
            ) : (
              <span class="fill">
                <meter
                  min={0}
                  max={leaseMs}
                  value={expiresInMs}
                  aria-label={`${expiresInMs} of ${leaseMs} ms`}
                />
                {formatSpan(expiresInMs / 1000)}
              </span>
            ),
          ],
        }))}
      />
    </Card>
  );
}

/** When each offset was first seen. */
function useSince(cursors: readonly Cursor[]): ReadonlyMap<string, number> {
  const seen = useRef(new Map<string, { readonly offset: string; readonly atMs: number }>());
  useEffect(() => {
    for (const { stream, offset } of cursors) {
      if (seen.current.get(stream)?.offset !== offset) {
        seen.current.set(stream, { offset, atMs: Date.now() });
      }
    }
  }, [cursors]);
  return new Map([...seen.current].map(([stream, { atMs }]) => [stream, atMs]));
}

function Cursors({ group, onChange }: { group: Group; onChange: () => void }) {
  const { cursors, members } = group;
  const [counts, setCounts] = useState<ReadonlyMap<string, string>>(new Map());
  const since = useSince(cursors);
  const live = new Set(members.filter(({ expiresInMs }) => expiresInMs > 0).map((m) => m.member));
  const count = async (): Promise<void> => {
    for (const cursor of cursors.filter(({ lag }) => lag > 0)) {
      const words = await countRecords(cursor);
      setCounts((old) => new Map([...old, [cursor.stream, words]]));
    }
  };
  return (
    <Card
      title="Streams"
      actions={
        <button type="button" onClick={() => void count()}>
          Count records behind
        </button>
      }
    >
      <Table
        label="Streams of the group"
        head={["Stream", "Committed", "Behind", "Held by", "State", ""]}
        empty="The group has no stream yet."
        rows={cursors.map((cursor) => ({
          key: cursor.stream,
          cells: [
            <a href={linkTo("stream", cursor.stream)}>{cursor.stream}</a>,
            <code title={cursor.offset}>{bytesOf(cursor.offset)}</code>,
            <Lag bytes={cursor.lag} records={counts.get(cursor.stream)} />,
            cursor.member === undefined ? "–" : <code>{cursor.member}</code>,
            <CursorState cursor={cursor} live={live} sinceMs={since.get(cursor.stream)} />,
            <Reset group={group.group} stream={cursor.stream} onDone={onChange} />,
          ],
        }))}
      />
    </Card>
  );
}

/** Attempts from which a job is shown as one that fails again and again. */
const ATTEMPTS_MANY = 5;

function JobStreams({ group, onChange }: { group: Group; onChange: () => void }) {
  const hasWorker = group.members.some(({ expiresInMs }) => expiresInMs > 0);
  return (
    <Card title="Streams">
      <Table
        label="Streams of the group"
        head={["Stream", "First not done", "Behind", "At work", "Waiting", "Attempts", "State", ""]}
        empty="The group has no stream yet."
        rows={group.cursors.map((cursor) => {
          const { stream, offset, lag, openJobs = 0, waitingJobs = 0, attemptMax = 0 } = cursor;
          return {
            key: stream,
            cells: [
              <a href={linkTo("stream", stream)}>{stream}</a>,
              <code title={offset}>{bytesOf(offset)}</code>,
              <Lag bytes={lag} />,
              formatCount(openJobs - waitingJobs),
              formatCount(waitingJobs),
              attemptMax === 0 ? "–" : `up to ${formatCount(attemptMax)}`,
              <JobState cursor={cursor} hasWorker={hasWorker} />,
              <Reset group={group.group} stream={stream} onDone={onChange} />,
            ],
          };
        })}
      />
      <p class="note">
        Waiting jobs were put back for later, or their worker is gone: the next one that takes gets
        them when they are due.
      </p>
    </Card>
  );
}

function JobState({ cursor, hasWorker }: { cursor: Cursor; hasWorker: boolean }) {
  const { lag, attemptMax = 0 } = cursor;
  if (lag === 0) return <Pill tone="good">all done</Pill>;
  if (!hasWorker) return <Pill tone="bad">stuck: no worker</Pill>;
  if (attemptMax >= ATTEMPTS_MANY) return <Pill tone="warn">one fails again and again</Pill>;
  return <Pill tone="good">at work</Pill>;
}

function CursorState(props: {
  cursor: Cursor;
  live: ReadonlySet<string>;
  sinceMs: number | undefined;
}) {
  const { finished, handOver, lag, member } = props.cursor;
  if (finished) return <Pill tone="calm">finished</Pill>;
  if (handOver) return <Pill tone="warn">moves to another member</Pill>;
  if (lag === 0) return <Pill tone="good">up to date</Pill>;
  if (member === undefined || !props.live.has(member))
    return <Pill tone="bad">stuck: not held</Pill>;
  const isStuck = props.sinceMs !== undefined && Date.now() - props.sinceMs > STUCK_MS;
  return isStuck ? <Pill tone="bad">stuck: does not move</Pill> : <Pill tone="good">at work</Pill>;
}

/** Counts the records of one page; a reader that is further behind sees a plus. */
async function countRecords({ stream, offset, life }: Cursor): Promise<string> {
  try {
    const response = await call("GET", stream, { query: { offset, life } });
    if (!/json/.test(response.headers.get("content-type") ?? "")) return "not of records";
    const count = recordsIn(await response.text()).length;
    const isAll = response.headers.has(STREAM_UP_TO_DATE);
    return `${formatCount(count)}${isAll ? "" : "+"} records`;
  } catch {
    return "not readable";
  }
}

function Reset(props: { group: string; stream?: string; onDone: () => void }) {
  const key = useRef("");
  const [to, setTo] = useState("beginning");
  const [offset, setOffset] = useState("");
  const { group, stream } = props;
  const run = (): Promise<Response> =>
    call("POST", ["_hapax", "groups", group, "reset"], {
      headers: { "Content-Type": "application/json", [IDEMPOTENCY_KEY]: key.current },
      body: JSON.stringify({
        ...(stream === undefined ? {} : { stream }),
        to: to === "offset" ? offset : to,
      }),
    });
  return (
    <Act
      isDanger
      label="Reset…"
      title={stream === undefined ? "Reset all streams of the group?" : "Reset this stream?"}
      onOpen={() => {
        key.current = newKey();
      }}
      run={run}
      onDone={props.onDone}
    >
      <p>
        The leases end, and members go on from the new offset. What lies between is processed again,
        or left out.
      </p>
      <Choice
        label="Go to"
        value={to}
        onChange={setTo}
        options={[
          ["beginning", "the beginning"],
          ["tail", "the tail"],
          ["offset", "an offset"],
        ]}
      />
      {to === "offset" ? (
        <Field label="Offset" value={offset} onInput={setOffset} isRequired />
      ) : null}
    </Act>
  );
}
