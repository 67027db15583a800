/** The frame of all pages: where one can go, and the keys that lead there. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { go, linkTo } from "./place.ts";
import { useShared } from "./store.ts";
import { theme, toggleTheme } from "./theme.ts";

/** A page that the frame leads to: its name in the address, and its title. */
export type Leads = readonly (readonly [id: string, words: string, ...more: unknown[]])[];

export function Frame(props: {
  leads: Leads;
  /** The lead that is shown as the present one. */
  at: string;
  /** Of the page, and of the window. */
  heading: string;
  title: string;
  brand: string;
  /** The page that `/` opens where there is nothing to search. */
  search: string;
  /** What the frame says of the state of things, and what else can be done. */
  foot: ComponentChildren;
  more?: ComponentChildren;
  children: ComponentChildren;
}) {
  const { leads, at, heading, title, brand, search } = props;
  const main = useRef<HTMLElement>(null);
  useKeys(leads, search);
  useEffect(() => {
    document.title = `${title} · ${brand}`;
    // A reader of the screen goes on with the new page.
    main.current?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [title, brand]);
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
      <header class="side">
        <a class="brand" href={linkTo("overview")}>
          <span aria-hidden="true">ἅπαξ</span> {brand}
        </a>
        <nav aria-label="Pages">
          {leads.map(([id, words], index) => (
            <a key={id} href={linkTo(id)} aria-current={id === at ? "page" : undefined}>
              {words} <kbd aria-hidden="true">{index + 1}</kbd>
            </a>
          ))}
        </nav>
        <div class="foot">
          {props.foot}
          <Colours count={leads.length} />
          {props.more}
        </div>
      </header>
      <main id="main" ref={main} tabIndex={-1}>
        <h1>{heading}</h1>
        {props.children}
      </main>
    </>
  );
}

function Colours({ count }: { count: number }) {
  const colours = useShared(theme);
  const keys = `Keys: 1 to ${String(count)} open a page, / searches, t changes the colours.`;
  return (
    <button type="button" class="quiet" onClick={toggleTheme} title={keys}>
      {colours === "dark" ? "Light colours" : "Dark colours"}
    </button>
  );
}

/** Single keys, where no text is being typed. */
function useKeys(leads: Leads, searchPage: string): void {
  useEffect(() => {
    const press = (event: KeyboardEvent): void => {
      const { target, key, ctrlKey, metaKey, altKey } = event;
      const isTyping =
        target instanceof Element && target.closest("input, textarea, select, dialog") !== null;
      if (isTyping || ctrlKey || metaKey || altKey) return;
      const chosen = leads[Number(key) - 1];
      if (chosen !== undefined) go(chosen[0]);
      else if (key === "t") toggleTheme();
      else if (key === "/") {
        const search = document.querySelector<HTMLInputElement>("input[type=search]");
        if (search === null) go(searchPage);
        else search.focus();
        event.preventDefault();
      }
    };
    addEventListener("keydown", press);
    return () => {
      removeEventListener("keydown", press);
    };
  }, [leads, searchPage]);
}
