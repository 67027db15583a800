/** Conformance cases of stores that another process can take over while the first one still runs. */

import { joinBytes, utf8Of } from "../base/bytes.ts";
import { isHapaxError } from "../base/errors.ts";
import type { Store } from "../streams/store.ts";
import {
  appended,
  type ConformanceCase,
  created,
  describeWorld,
  equalBytes,
  equalCanonical,
  type OpenStore,
  readAll,
  rejects,
  write,
} from "./store-case-kit.ts";

function takeOver(open: OpenStore): Promise<Store> {
  if (open.takeOver === undefined) throw new Error("the store cannot be taken over");
  return open.takeOver();
}

async function textOf(store: Store, id: number): Promise<string> {
  const tail = store.world.byId.get(id as never)?.tail ?? 0;
  return new TextDecoder().decode(joinBytes(await readAll(store, id, 0, tail)));
}

/** Closes a store that was taken over. It may say that it has lost what it had. */
async function closeOld(store: Store): Promise<void> {
  await store.close().catch(() => undefined);
}

/** Commits one append after the other, until one is refused. Returns the texts that were acknowledged. */
async function commitUntilMoved(store: Store, name: string, acked: string[]): Promise<unknown> {
  for (let count = 0; ; count += 1) {
    const text = `${name}.${count};`;
    try {
      await write(store, appended(1, text));
    } catch (error) {
      return error;
    }
    acked.push(text);
  }
}

export const fencingStoreCases: readonly ConformanceCase[] = [
  {
    name: "S10 after a takeover the former owner commits nothing, and what it had stored can be read",
    needs: "takeover",
    async run(open) {
      const old = await open.open();
      await write(old, created(1), appended(1, "before;"));
      const next = await takeOver(open);
      await rejects(
        write(old, appended(1, "late;")),
        "shard_moved",
        "a commit of the former owner",
      );
      await rejects(write(old, appended(1, "later;")), "shard_moved", "another one");
      equalBytes(
        joinBytes(await readAll(old, 1, 0, 7)),
        utf8Of("before;"),
        "a read of the former owner",
      );
      await closeOld(old);
      equalCanonical(await textOf(next, 1), "before;", "what the next owner has");
      await next.close();
      const after = await open.open();
      equalCanonical(await textOf(after, 1), "before;", "what is there after a reopen");
      await after.close();
    },
  },
  {
    name: "S12 the next owner finds everything that was acknowledged, and goes on",
    needs: "takeover",
    async run(open) {
      const old = await open.open();
      await write(old, created(1), appended(1, "a"), created(2), appended(2, "b"));
      await write(old, appended(1, "c"));
      const world = describeWorld(old.world);
      const next = await takeOver(open);
      equalCanonical(describeWorld(next.world), world, "the world of the next owner");
      await write(next, appended(1, "d"), created(3), appended(3, "e"));
      await closeOld(old);
      await next.close();
      const after = await open.open();
      equalCanonical(await textOf(after, 1), "acd", "the stream that both have written");
      equalCanonical(await textOf(after, 3), "e", "a stream of the next owner");
      await after.close();
    },
  },
  {
    name: "S10 S12 takeovers against an owner that goes on committing lose nothing and store nothing twice",
    needs: "takeover",
    async run(open) {
      let owner = await open.open();
      await write(owner, created(1));
      const acked: string[] = [];
      for (let round = 0; round < 5; round += 1) {
        const committing = commitUntilMoved(owner, `r${round}`, acked);
        const next = await takeOver(open);
        const end = await committing;
        equalCanonical(
          isHapaxError(end, "shard_moved"),
          true,
          `the end of owner ${round}: ${String(end)}`,
        );
        await closeOld(owner);
        owner = next;
      }
      await owner.close();
      const after = await open.open();
      const stored = (await textOf(after, 1)).split(";").filter((text) => text !== "");
      equalCanonical(new Set(stored).size, stored.length, "how many appends are stored once");
      const found = new Set(stored);
      for (const text of acked) {
        equalCanonical(
          found.has(text.slice(0, -1)),
          true,
          `the acknowledged append ${text} is stored`,
        );
      }
      await after.close();
    },
  },
];
