/** Parts that several pages of the console share. */

import { useEffect, useState } from "preact/hooks";
import type { KeptValue, OverviewView, Rows } from "../../toolkit/console/views.ts";
import { hexLines, prettyJson } from "../json-text.ts";
import { Pill } from "../parts.tsx";
import { Shared } from "../store.ts";
import { formatBytes, formatSpan } from "../words.ts";
import { ask, type Query } from "./api.ts";

/** What the console has said of itself last. */
export const about = new Shared<OverviewView | undefined>(undefined);

const TONES: Readonly<Record<string, "good" | "bad" | "warn" | "calm">> = {
  done: "good",
  completed: "good",
  failed: "bad",
  stuck: "bad",
  unreadable: "bad",
  dead: "bad",
  undoing: "warn",
  undone: "warn",
  overdue: "warn",
};

export function StatePill({ state }: { state: string }) {
  return <Pill tone={TONES[state] ?? "calm"}>{state}</Pill>;
}

export function Ago({ ms }: { ms: number }) {
  return <span title={new Date(Date.now() - ms).toLocaleString()}>{span(ms)} ago</span>;
}

export function span(ms: number): string {
  return formatSpan(Math.max(0, ms) / 1000);
}

/** Where an entry is, as one name in the address of the page. */
export function nameOf(...parts: readonly string[]): string {
  return JSON.stringify(parts);
}

export function partsOf(name: string | undefined): readonly string[] | undefined {
  try {
    const parsed: unknown = JSON.parse(name ?? "");
    return Array.isArray(parsed) &&
      parsed.length === 3 &&
      parsed.every((one) => typeof one === "string")
      ? (parsed as readonly string[])
      : undefined;
  } catch {
    return undefined;
  }
}

const SHOWN_BYTES_MAX = 4096;

export function Value({ value }: { value: KeptValue }) {
  const { bytes, text, base64 = "" } = value;
  const isJson = text !== undefined && /^\s*[[{"]/.test(text);
  const shown =
    text === undefined
      ? hexLines(bytesOf(base64), SHOWN_BYTES_MAX)
      : isJson
        ? prettyJson(text)
        : text;
  return (
    <>
      <pre class="value" tabIndex={0} role="region" aria-label="Value">
        {shown}
      </pre>
      <p class="note">{formatBytes(bytes)}</p>
    </>
  );
}

function bytesOf(base64: string): Uint8Array {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}

/** Pages without a match that are read one after the other before the person is asked. */
const EMPTY_MAX = 20;

export interface Listed<T> {
  readonly rows: readonly T[] | undefined;
  readonly error: unknown;
  readonly isBusy: boolean;
  /** Undefined: there is no more. */
  readonly more: (() => void) | undefined;
}

/** Reads a list page by page: one page at first, and one with each `more`. Another query begins anew. */
export function useRows<T>(what: string, query: Query, round: number): Listed<T> {
  const [state, setState] = useState<Omit<Listed<T>, "more"> & { readonly next?: string }>({
    rows: undefined,
    error: undefined,
    isBusy: true,
  });
  const [from, setFrom] = useState<string | undefined>(undefined);
  const id = JSON.stringify([what, query, round]);
  useEffect(() => {
    setFrom(undefined);
    setState({ rows: undefined, error: undefined, isBusy: true });
  }, [id]);
  useEffect(() => {
    const ending = new AbortController();
    const read = async (): Promise<void> => {
      let next = from;
      try {
        for (let empty = 0; empty < EMPTY_MAX; empty += 1) {
          const page = await ask<Rows<T>>(what, { ...query, from: next }, ending.signal);
          next = page.next;
          if (page.rows.length === 0 && next !== undefined) continue;
          add(page.rows, next);
          return;
        }
        add([], next);
      } catch (error) {
        if (!ending.signal.aborted) setState((old) => ({ ...old, error, isBusy: false }));
      }
    };
    const add = (rows: readonly T[], next: string | undefined): void => {
      if (ending.signal.aborted) return;
      setState((old) => ({
        rows: from === undefined ? rows : [...(old.rows ?? []), ...rows],
        error: undefined,
        isBusy: false,
        ...(next === undefined ? {} : { next }),
      }));
    };
    void read();
    return () => {
      ending.abort();
    };
  }, [id, from]);
  const { next, ...rest } = state;
  const more = (): void => {
    setState((old) => ({ ...old, isBusy: true }));
    setFrom(next);
  };
  return { ...rest, more: next === undefined ? undefined : more };
}

export function More({ listed }: { listed: Listed<unknown> }) {
  const { more, isBusy, rows } = listed;
  if (more === undefined) return null;
  return (
    <div class="more">
      <button type="button" disabled={isBusy} onClick={more}>
        {rows?.length === 0 ? "Look further" : "More"}
      </button>
      <span class="note" role="status">
        {isBusy ? "Reading…" : `${String(rows?.length ?? 0)} shown`}
      </span>
    </div>
  );
}
