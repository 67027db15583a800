/** Copies one stream: pages from where the target is, the close, and then the comparison of both sides. */

import { CommandFailure, EXIT } from "../failure.ts";
import { bytesBefore, type SourceStream, type StreamFacts, type StreamCopy } from "./page.ts";
import type { TargetPlace, TargetStream } from "./server-target.ts";

export interface CopyOfStream {
  readonly source: SourceStream;
  readonly target: TargetStream;
  /** Ends the copying, and not the comparison; undefined: at the tail. */
  readonly until: AbortSignal | undefined;
  /** Compares only what this call has copied: the rest was compared before. */
  readonly isAgain: boolean;
  /** Gets the bytes that were stored, of so many. */
  show(bytes: number, total: number): Promise<void>;
}

export async function copyStream(copy: CopyOfStream): Promise<StreamCopy> {
  const { source, target } = copy;
  const { path } = source.facts;
  const begin = await target.begin();
  requireNoGap(source.facts, begin.end);
  const progress = new Progress(copy, begin);
  let place = begin;
  for (;;) {
    const next = await copyPages(copy, place, progress);
    if (!next.isOvertaken) break;
    place = next.place;
  }
  if (progress.isSourceClosed && !progress.place.isClosed) await target.close(progress.place.end);
  const { end } = progress.place;
  await target.finish(end);
  const sha256 = await compare(copy, copy.isAgain ? bytesBefore(begin.end) : 0, bytesBefore(end));
  const { compactKey } = source.facts;
  const rule = compactKey === undefined ? {} : { compactKey };
  const closed = progress.isSourceClosed;
  const report = { stream: path, bytes: progress.bytes, end, closed, ...rule };
  return sha256 === undefined ? report : { ...report, sha256 };
}

class Progress {
  place: TargetPlace;
  bytes = 0;
  isSourceClosed = false;
  readonly #copy: CopyOfStream;
  readonly #begin: number;

  constructor(copy: CopyOfStream, begin: TargetPlace) {
    this.#copy = copy;
    this.place = begin;
    this.#begin = bytesBefore(begin.end);
  }

  async add(place: TargetPlace): Promise<void> {
    this.bytes += bytesBefore(place.end) - bytesBefore(this.place.end);
    this.place = place;
    const { tail } = this.#copy.source.facts;
    const done = bytesBefore(place.end) - this.#begin;
    const total = tail === undefined ? done : Math.max(done, bytesBefore(tail) - this.#begin);
    await this.#copy.show(done, total);
  }
}

interface Ended {
  readonly place: TargetPlace;
  /** Another run has written what this one wanted to write: it goes on where the target is now. */
  readonly isOvertaken: boolean;
}

async function copyPages(
  { source, target, until }: CopyOfStream,
  place: TargetPlace,
  progress: Progress,
): Promise<Ended> {
  progress.place = place;
  try {
    for await (const page of source.pages(place.end)) {
      progress.isSourceClosed = page.isClosed;
      if (bytesBefore(page.end) <= bytesBefore(progress.place.end)) continue;
      if (progress.place.isClosed) throw closedTooEarly(source.facts.path);
      const next = await target.write(page);
      if (next.end !== page.end) return { place: next, isOvertaken: true };
      await progress.add(next);
    }
  } catch (error) {
    if (until?.aborted !== true || error !== until.reason) throw error;
  }
  return { place: progress.place, isOvertaken: false };
}

/** After so many trims during a comparison it is given up. */
const TRIMS_MAX = 5;

/** The digest of what both sides still have; undefined if one of them cannot be read again. */
async function compare(
  copy: CopyOfStream,
  least: number,
  end: number,
): Promise<string | undefined> {
  const { source, target } = copy;
  for (let trims = 0; ; trims += 1) {
    const { from, to } = await target.range(end);
    const begin = Math.max(from, least, await source.earliest());
    if (begin >= to) return undefined;
    try {
      const one = await source.digest(begin, to);
      const other = await target.digest(begin, to);
      if (one === undefined || other === undefined) return undefined;
      if (one === other) return one;
    } catch (error) {
      const isTrim = error instanceof CommandFailure && error.problem.code === "offset_trimmed";
      if (isTrim && trims < TRIMS_MAX) continue;
      throw error;
    }
    throw new CommandFailure(EXIT.refused, `${source.facts.path} differs in the target`, [
      `the SHA-256 of what both have before ${String(to)} is not the same: keep the source, and delete the target`,
    ]);
  }
}

/** What lies between the end of the target and the beginning of the source is nowhere. */
function requireNoGap({ path, from }: StreamFacts, end: string): void {
  if (bytesBefore(end) >= bytesBefore(from)) return;
  throw new CommandFailure(
    EXIT.refused,
    `${path} begins at ${from}, and the target ends at ${end}`,
    [
      "what is between the two was trimmed, or is in another file: copy that first, or delete the target to begin anew",
    ],
  );
}

function closedTooEarly(path: string): CommandFailure {
  return new CommandFailure(EXIT.refused, `${path} is closed in the target before its end`, [
    "another writer has closed the target: the rest of the source cannot be copied into it",
  ]);
}
