/** Subscriptions: who is woken, by which streams, and whether that works. */

import { useLoaded } from "../loading.ts";
import { Pager, usePaging } from "../paging.tsx";
import { Act, Card, Pill, Problem, Table } from "../parts.tsx";
import { call, getJson } from "../server.ts";
import { countOf } from "../words.ts";

export interface Subscribed {
  readonly subscription: string;
  readonly type: "webhook" | "pull-wake";
  readonly pattern?: string;
  readonly webhook?: string;
  readonly wakeStream?: string;
  readonly streams: number;
  readonly phase: "idle" | "waking" | "held";
  readonly status: "active" | "failed";
  readonly generation: number;
}

const EVERY_MS = 3000;
const PHASES = { idle: "nothing to do", waking: "waiting to be taken", held: "at work" } as const;

export function SubscriptionsPage() {
  const paging = usePaging();
  const { value, error, reload } = useLoaded(
    (signal) =>
      getJson<{ subscriptions: readonly Subscribed[]; next?: string }>(
        "/_hapax/subscriptions",
        { after: paging.from, limit: "100" },
        { signal },
      ),
    [paging.from],
    EVERY_MS,
  );
  return (
    <Card title="All subscriptions">
      {error === undefined ? null : <Problem error={error} />}
      {value === undefined ? null : (
        <SubscriptionTable subscriptions={value.subscriptions} onChange={reload} />
      )}
      <Pager paging={paging} next={value?.next} />
    </Card>
  );
}

export function SubscriptionTable(props: {
  subscriptions: readonly Subscribed[];
  onChange: () => void;
}) {
  return (
    <Table
      label="Subscriptions"
      head={["Subscription", "Wakes", "Follows", "State", ""]}
      empty="There is no subscription. PROTOCOL.md, section 11, says how to make one."
      rows={props.subscriptions.map((one) => ({
        key: one.subscription,
        cells: [
          <code>{one.subscription}</code>,
          one.webhook ?? one.wakeStream ?? one.type,
          `${countOf(one.streams, "stream")}${one.pattern === undefined ? "" : `, ${one.pattern}`}`,
          one.status === "failed" ? (
            <Pill tone="bad">webhook fails</Pill>
          ) : (
            <Pill tone={one.phase === "idle" ? "calm" : "good"}>{PHASES[one.phase]}</Pill>
          ),
          <Remove id={one.subscription} onDone={props.onChange} />,
        ],
      }))}
    />
  );
}

function Remove({ id, onDone }: { id: string; onDone: () => void }) {
  return (
    <Act
      isDanger
      label="Delete…"
      title="Delete this subscription?"
      run={() => call("DELETE", ["v1", "stream", "__ds", "subscriptions", id])}
      onDone={onDone}
    >
      <p>
        <code>{id}</code> will wake no one any more, and its acknowledged offsets are gone.
      </p>
    </Act>
  );
}
