/** A journal with something of everything, for tests that damage it byte by byte. */

import type { Change } from "../../src/streams/core/change.ts";
import type { StreamId, StreamName, TimeMs } from "../../src/streams/core/types.ts";
import { applyChange } from "../../src/streams/core/world.ts";
import type { FileStore } from "../../src/streams/stores/file.ts";
import type { SeededRandom } from "../../src/testing/seeded-random.ts";
import {
  appended,
  created,
  ended,
  forked,
  keyed,
  marked,
} from "../../src/testing/store-case-kit.ts";

/** One commit, as the engine does it: first it changes the world, then it calls the store. */
export async function commit(store: FileStore, changes: readonly Change[]): Promise<void> {
  for (const change of changes) applyChange(store.world, change);
  await store.commit(changes);
}

/** Commits until the journal has about this many bytes of frames. */
export async function writeSample(
  store: FileStore,
  random: SeededRandom,
  bytes: number,
): Promise<void> {
  await commit(store, [created(1), created(2), created(3, { name: "/case/closed" as StreamName })]);
  await commit(store, [appended(3, "first and last", { closes: true })]);
  let written = 0;
  for (let step = 0; written < bytes; step += 1) {
    const data = Buffer.alloc(1 + random.below(step % 10 === 0 ? 4000 : 400), 97 + (step % 26));
    written += data.length + 100;
    await commit(store, changesOf(store, step, data));
  }
}

function changesOf(store: FileStore, step: number, data: Uint8Array): readonly Change[] {
  const atMs = (step + 10) as TimeMs;
  const life = Math.floor(step / 16);
  const producer = marked("writer", life, step % 16, { session: `life-${life}` });
  const append = appended(1, data, { producer, streamSeq: String(step).padStart(6, "0"), atMs });
  if (step % 7 !== 3) {
    const ordinal = store.world.byId.get(2 as StreamId)?.keys?.window?.next ?? 0;
    const key = keyed(`key ${step}`, ordinal, Math.max(0, ordinal - 3));
    return step % 5 === 0 ? [append, appended(2, data, { key, atMs })] : [append];
  }
  const id = store.world.nextId;
  const tail = store.world.byId.get(1 as StreamId)?.tail;
  if (step % 2 === 0) return [append, created(id), appended(id, data), ended("removed", id)];
  const key = { kind: "signing_key_added", atMs, key: `key ${step}` } as const;
  return [forked(id, 1, tail ?? 0), appended(id, data), append, key];
}
