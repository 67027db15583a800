/** The nodes of a cluster, and who owns each shard, as the node sees it that answers. */

import { useLoaded } from "../loading.ts";
import { Card, Empty, Pill, Problem, Table } from "../parts.tsx";
import { getJson } from "../server.ts";
import { countOf, formatCount } from "../words.ts";

interface Node {
  readonly node: string;
  readonly state: "alive" | "draining" | "silent";
  readonly url?: string;
  readonly version?: string;
}

interface Shard {
  readonly shard: number;
  readonly owner?: string;
  readonly pinned?: string;
}

interface Cluster {
  /** The one that answers. A server alone has none. */
  readonly node?: string;
  readonly nodes: readonly Node[];
  readonly shards: readonly Shard[];
}

const EVERY_MS = 1000;

export function NodesPage() {
  const { value, error } = useLoaded(
    (signal) => getJson<Cluster>("/_hapax/cluster", {}, { signal }),
    [],
    EVERY_MS,
  );
  return (
    <>
      {error === undefined ? null : <Problem error={error} />}
      {value === undefined ? null : value.node === undefined ? (
        <Empty>This server is alone: it owns all streams itself.</Empty>
      ) : (
        <>
          <Nodes cluster={value} />
          <Shards shards={value.shards} />
          <Commands />
        </>
      )}
    </>
  );
}

function Nodes({ cluster: { node: self, nodes, shards } }: { cluster: Cluster }) {
  return (
    <Card title="Nodes">
      <Table
        label="Nodes"
        head={["Node", "State", "Shards", "Address", "Version"]}
        empty="No node has given a sign of life."
        rows={nodes.map(({ node, state, url, version }) => {
          const owned = shards.filter(({ owner }) => owner === node).length;
          return {
            key: node,
            cells: [
              <>
                <b>{node}</b>
                {node === self ? <span class="note"> answers this page</span> : null}
              </>,
              <NodeState state={state} />,
              <span class="fill">
                <meter
                  min={0}
                  max={shards.length}
                  value={owned}
                  aria-label={`${owned} of ${shards.length} shards`}
                />
                {formatCount(owned)}
              </span>,
              <Address url={url} />,
              version ?? "–",
            ],
          };
        })}
      />
    </Card>
  );
}

function NodeState({ state }: Pick<Node, "state">) {
  if (state === "silent") return <Pill tone="bad">no sign of life</Pill>;
  if (state === "draining") return <Pill tone="warn">gives its shards up</Pill>;
  return <Pill tone="good">alive</Pill>;
}

/** Leads to the page of the other node, if it is an address of the web. */
function Address({ url }: { url: string | undefined }) {
  if (url === undefined) return <>–</>;
  return /^https?:\/\//.test(url) ? <a href={`${url}/_hapax/ui/`}>{url}</a> : <>{url}</>;
}

function Shards({ shards }: { shards: readonly Shard[] }) {
  const lost = shards.filter(({ owner }) => owner === undefined).length;
  return (
    <Card
      title="Shards"
      actions={
        lost === 0 ? (
          <Pill tone="good">all have an owner</Pill>
        ) : (
          <Pill tone="bad">{countOf(lost, "shard")} without an owner</Pill>
        )
      }
    >
      <ol class="shards">
        {shards.map(({ shard, owner, pinned }) => (
          <li key={shard} class={owner === undefined ? "bad" : ""} data-shard={shard}>
            <b>{shard}</b>
            <span>{owner ?? "no owner"}</span>
            {pinned === undefined ? null : <span class="note">tied to {pinned}</span>}
          </li>
        ))}
      </ol>
      <p class="note">
        All streams of one placement, the first segment below <code>/v1/stream/</code>, are in one
        shard. While a shard has no owner, requests for it wait up to five seconds.
      </p>
    </Card>
  );
}

function Commands() {
  return (
    <Card title="Move and drain">
      <p>A move ties a shard to a node. A node that drains gives its shards to the others.</p>
      <pre class="commands">{COMMANDS}</pre>
    </Card>
  );
}

const COMMANDS = [
  "hapax cluster status --store postgres://…",
  "hapax cluster move <shard> <node> --store postgres://…",
  "hapax cluster drain <node> --store postgres://…",
].join("\n");
