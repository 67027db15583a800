/** All pages of the dashboard: how the server is, and who looks. */

import type { ComponentType } from "preact";
import { useState } from "preact/hooks";
import { Frame } from "./frame.tsx";
import { forgetLooks, type Health, health, part } from "./metrics.ts";
import { DeadLettersPage } from "./pages/dead-letters.tsx";
import { GroupsPage } from "./pages/groups.tsx";
import { LookUpPage } from "./pages/look-up.tsx";
import { NodesPage } from "./pages/nodes.tsx";
import { OverviewPage } from "./pages/overview.tsx";
import { StreamPage } from "./pages/stream.tsx";
import { StreamsPage } from "./pages/streams.tsx";
import { SubscriptionsPage } from "./pages/subscriptions.tsx";
import { TokensPage } from "./pages/tokens.tsx";
import { Field, Pill } from "./parts.tsx";
import { place } from "./place.ts";
import { Refusal } from "./refusal.ts";
import { identity, token, keepToken } from "./server.ts";
import { useShared } from "./store.ts";

const PAGES: readonly (readonly [string, string, ComponentType<{ name: string | undefined }>])[] = [
  ["overview", "Overview", OverviewPage],
  ["streams", "Streams", StreamsPage],
  ["groups", "Groups", GroupsPage],
  ["subscriptions", "Subscriptions", SubscriptionsPage],
  ["look-up", "Was it stored?", LookUpPage],
  ["dead-letters", "Dead letters", DeadLettersPage],
  ["tokens", "Tokens", TokensPage],
];
/** Of a cluster alone. */
const ALL_PAGES: typeof PAGES = [...PAGES, ["nodes", "Nodes", NodesPage]];

export function App() {
  const { page, name } = useShared(place);
  const who = useShared(identity);
  const isStream = page === "stream";
  const isGroup = page === "groups" && name !== undefined;
  const found = ALL_PAGES.find(([id]) => id === page);
  const title = isStream || isGroup ? (name ?? "Stream") : (found?.[1] ?? "Overview");
  const Page = isStream ? StreamPage : (found?.[2] ?? OverviewPage);
  return (
    <Frame
      leads={useShared(part) === undefined ? PAGES : ALL_PAGES}
      at={isStream ? "streams" : page}
      heading={isStream ? "Stream" : isGroup ? "Group" : title}
      title={title}
      brand="Hapax"
      search="streams"
      foot={<ServerState />}
      more={<Forget />}
    >
      {who === "needed" ? <TokenForm /> : <Page key={`${page} ${name ?? ""}`} name={name} />}
    </Frame>
  );
}

/** Forgets who the person was. */
function Forget() {
  if (useShared(token) === "") return null;
  return (
    <button
      type="button"
      class="quiet"
      onClick={() => {
        forgetLooks();
        keepToken("");
      }}
    >
      Forget the token
    </button>
  );
}

/** The state of the write path, announced when it changes. */
function ServerState() {
  const state = useShared(health);
  return (
    <div role="status" class="state">
      {state === undefined ? <Pill tone="calm">Connecting…</Pill> : <StatePill state={state} />}
    </div>
  );
}

const STATES: Readonly<Record<string, string>> = {
  store_full: "Disk full: reads only",
  owner_unknown: "Shards without an owner",
  shutting_down: "Stopping",
};

function StatePill({ state }: { state: Health | Refusal }) {
  if (!(state instanceof Refusal)) return <Pill tone="good">Writes open</Pill>;
  if (state.status === 0) return <Pill tone="warn">No answer, trying again</Pill>;
  return <Pill tone="bad">{STATES[state.code] ?? "Writes stopped"}</Pill>;
}

/** Asks for a token when the server demands one. */
function TokenForm() {
  const [text, setText] = useState("");
  const isRefused = useShared(token) !== "";
  return (
    <form
      class="card token"
      onSubmit={(event) => {
        event.preventDefault();
        forgetLooks();
        keepToken(text.trim());
        setText("");
      }}
    >
      <h2>{isRefused ? "The server refuses this token" : "This server asks who you are"}</h2>
      <p>
        Paste an API key (<code>hpx_…</code>) or a token of your identity provider. It stays in this
        tab until you close it, and is sent to this server alone.
      </p>
      <Field label="Token" kind="secret" value={text} onInput={setText} isRequired />
      <button type="submit" class="solid">
        Use this token
      </button>
      <p class="note">
        To make a key: <code>hapax tokens create --name me --allow read,observe</code>
      </p>
    </form>
  );
}
