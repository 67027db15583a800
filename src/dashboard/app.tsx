/** The frame of all pages: where one can go, how the server is, and who looks. */

import type { ComponentType } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { forgetLooks, type Health, health } from "./metrics.ts";
import { DeadLettersPage } from "./pages/dead-letters.tsx";
import { GroupsPage } from "./pages/groups.tsx";
import { LookUpPage } from "./pages/look-up.tsx";
import { OverviewPage } from "./pages/overview.tsx";
import { StreamPage } from "./pages/stream.tsx";
import { StreamsPage } from "./pages/streams.tsx";
import { SubscriptionsPage } from "./pages/subscriptions.tsx";
import { TokensPage } from "./pages/tokens.tsx";
import { Field, Pill } from "./parts.tsx";
import { go, linkTo, place } from "./place.ts";
import { identity, Refusal, token, keepToken } from "./server.ts";
import { useShared } from "./store.ts";
import { theme, toggleTheme } from "./theme.ts";

const PAGES: readonly (readonly [string, string, ComponentType<{ name: string | undefined }>])[] = [
  ["overview", "Overview", OverviewPage],
  ["streams", "Streams", StreamsPage],
  ["groups", "Groups", GroupsPage],
  ["subscriptions", "Subscriptions", SubscriptionsPage],
  ["look-up", "Was it stored?", LookUpPage],
  ["dead-letters", "Dead letters", DeadLettersPage],
  ["tokens", "Tokens", TokensPage],
];

const KEYS = "Keys: 1 to 7 open a page, / searches, t changes the colours.";

export function App() {
  const { page, name } = useShared(place);
  const who = useShared(identity);
  const main = useRef<HTMLElement>(null);
  useKeys();
  const found = PAGES.find(([id]) => id === page);
  const title = page === "stream" ? (name ?? "Stream") : (found?.[1] ?? "Overview");
  useEffect(() => {
    document.title = `${title} · Hapax`;
    // A reader of the screen goes on with the new page.
    main.current?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [title]);
  const Page = page === "stream" ? StreamPage : (found?.[2] ?? OverviewPage);
  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        To the content
      </a>
      <Sidebar page={page === "stream" ? "streams" : page} />
      <main id="main" ref={main} tabIndex={-1}>
        <h1>{page === "stream" ? "Stream" : title}</h1>
        {who === "needed" ? <TokenForm /> : <Page key={`${page} ${name ?? ""}`} name={name} />}
      </main>
    </>
  );
}

function Sidebar({ page }: { page: string }) {
  const colours = useShared(theme);
  const sent = useShared(token);
  return (
    <header class="side">
      <a class="brand" href={linkTo("overview")}>
        <span aria-hidden="true">ἅπαξ</span> Hapax
      </a>
      <nav aria-label="Pages">
        {PAGES.map(([id, words], index) => (
          <a key={id} href={linkTo(id)} aria-current={id === page ? "page" : undefined}>
            {words} <kbd aria-hidden="true">{index + 1}</kbd>
          </a>
        ))}
      </nav>
      <div class="foot">
        <ServerState />
        <button type="button" class="quiet" onClick={toggleTheme} title={KEYS}>
          {colours === "dark" ? "Light colours" : "Dark colours"}
        </button>
        {sent === "" ? null : (
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
        )}
      </div>
    </header>
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

/** Single keys, where no text is being typed. */
function useKeys(): void {
  useEffect(() => {
    const press = (event: KeyboardEvent): void => {
      const { target, key, ctrlKey, metaKey, altKey } = event;
      const isTyping =
        target instanceof Element && target.closest("input, textarea, select, dialog") !== null;
      if (isTyping || ctrlKey || metaKey || altKey) return;
      const chosen = PAGES[Number(key) - 1];
      if (chosen !== undefined) go(chosen[0]);
      else if (key === "t") toggleTheme();
      else if (key === "/") {
        const search = document.querySelector<HTMLInputElement>("input[type=search]");
        if (search === null) go("streams");
        else search.focus();
        event.preventDefault();
      }
    };
    addEventListener("keydown", press);
    return () => {
      removeEventListener("keydown", press);
    };
  }, []);
}
