/** Reads the records of a stream page by page, and follows it live over cut connections. */

import {
  STREAM_CLOSED,
  STREAM_CURSOR,
  STREAM_NEXT_OFFSET,
  STREAM_UP_TO_DATE,
} from "../protocol/header-names.ts";
import { recordsIn } from "./json-text.ts";
import { Refusal } from "./refusal.ts";
import { call } from "./server.ts";
import { bytesOf, offsetOf } from "./words.ts";

/** A record of JSON, or the bytes of a page. */
export interface ShownRecord {
  readonly offset: string;
  readonly bytes: Uint8Array;
}

export interface ReadPage {
  readonly records: readonly ShownRecord[];
  readonly next: string;
  readonly isUpToDate: boolean;
  readonly isAtEnd: boolean;
  readonly cursor: string | undefined;
}

/** Which stream, and which life of it. */
export interface Source {
  readonly path: string;
  readonly life: string;
  readonly isJson: boolean;
}

const utf8 = new TextEncoder();
const text = new TextDecoder();

export async function readPage(
  { path, life, isJson }: Source,
  query: { readonly offset: string; readonly live?: string; readonly cursor?: string },
  signal: AbortSignal,
): Promise<ReadPage> {
  const response = await call("GET", path, { query: { ...query, life }, signal });
  const bytes = new Uint8Array(await response.arrayBuffer());
  const next = response.headers.get(STREAM_NEXT_OFFSET) ?? query.offset;
  const start = bytesOf(next) - bytes.length;
  const records = isJson
    ? recordsIn(text.decode(bytes)).map((record) => ({
        offset: offsetOf(start + record.at),
        bytes: utf8.encode(record.text),
      }))
    : bytes.length === 0
      ? []
      : [{ offset: offsetOf(start), bytes }];
  return {
    records,
    next,
    isUpToDate: response.headers.has(STREAM_UP_TO_DATE),
    isAtEnd: response.headers.has(STREAM_CLOSED),
    cursor: response.headers.get(STREAM_CURSOR) ?? undefined,
  };
}

const PAUSE_MS = 1000;

/** Gives every page after the offset, until the stream is closed or the signal ends it. Outages are waited out. */
export async function followPages(
  source: Source,
  from: string,
  signal: AbortSignal,
  onPage: (page: ReadPage) => void,
  onState: (error: Refusal | undefined) => void,
): Promise<void> {
  let [offset, cursor]: [string, string | undefined] = [from, undefined];
  while (!signal.aborted) {
    try {
      const query = { offset, live: "long-poll", ...(cursor === undefined ? {} : { cursor }) };
      const page = await readPage(source, query, signal);
      ({ next: offset, cursor } = page);
      onState(undefined);
      onPage(page);
      if (page.isAtEnd) return;
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof Refusal) || !isPassing(error)) throw error;
      onState(error);
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  }
}

function isPassing({ status }: Refusal): boolean {
  return status === 0 || status === 429 || status >= 500;
}
