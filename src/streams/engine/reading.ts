/**
 * Reading a stream that may be a fork: bytes before a fork's own first one belong to its source.
 *
 *   - a read never passes the durable tail of the stream that was asked for;
 *   - a fork shows its source up to the fork point and never what the source got afterwards.
 */

import type { StreamState } from "../core/stream.ts";
import { advance, type Offset, type TimeMs } from "../core/types.ts";
import type { World } from "../core/world.ts";
import type { Page, Store } from "../store.ts";

/** Whole appends from the one that holds `from`, over the borders of forks. */
export async function readAcrossForks(
  store: Store,
  state: StreamState,
  from: Offset,
  to: Offset,
  bytesMax: number,
): Promise<Required<Page>> {
  const appends: Uint8Array[] = [];
  let start: Offset | undefined;
  const releases: (() => void)[] = [];
  let position = from;
  let bytes = 0;
  while (position < to && bytes < bytesMax) {
    const owner = findOwner(store.world, state, position, to);
    const page = await store.read(owner.state.id, position, owner.end, bytesMax - bytes);
    if (page.appends.length === 0) break;
    const first = page.appends[0]?.length ?? 0;
    // A page holds at least one append, however large: do not let a second one run over the limit.
    if (bytes > 0 && bytes + first > bytesMax) break;
    if (page.release !== undefined) releases.push(page.release);
    start ??= page.start;
    position = page.start;
    for (const append of page.appends) {
      appends.push(append);
      position = advance(position, append.length);
      bytes += append.length;
    }
  }
  const release = (): void => {
    for (const one of releases) one();
  };
  return { start: start ?? from, appends, release };
}

/** Where the first append is that was stored at a time or later, from `from` on; `to` if there is none before it. */
export async function seekAcrossForks(
  store: Store,
  state: StreamState,
  from: Offset,
  to: Offset,
  atMs: TimeMs,
): Promise<Offset> {
  for (let position = from; position < to;) {
    // What a fork has of its source was stored before the fork was made: times do not go back here either.
    const owner = findOwner(store.world, state, position, to);
    const found = await store.seek(owner.state.id, position, owner.end, atMs);
    if (found < owner.end) return found;
    position = owner.end;
  }
  return to;
}

/** The stream that holds the byte at `position`, and where its part ends. */
function findOwner(
  world: World,
  reader: StreamState,
  position: Offset,
  to: Offset,
): { readonly state: StreamState; readonly end: Offset } {
  let state = reader;
  let end = to;
  while (state.fork !== undefined && position < state.fork.at) {
    const source = world.byId.get(state.fork.source);
    if (source === undefined) break;
    if (state.fork.at < end) end = state.fork.at;
    state = source;
  }
  return { state, end };
}
