/** The contract of sink.ts as cases that any test runner can run. */

import { strict as assert } from "node:assert";
import { isHapaxError } from "../base/errors.ts";
import type { Sink, SinkPlace } from "../client/processing/sink.ts";

/** Gives the cases access to a database. You implement it for your sink. */
export interface SinkTarget<Tx> {
  /** Opens a sink over the same database, as another process would. */
  open(): Promise<Sink<Tx>>;
  /** Writes an effect in a transaction. */
  write(tx: Tx, text: string): Promise<void>;
  /** Returns all committed effects, in order. */
  read(): Promise<readonly string[]>;
}

/** One case of the contract of sinks. `run` throws if the sink breaks the contract. */
export interface SinkCase {
  readonly title: string;
  readonly run: <Tx>(target: SinkTarget<Tx>) => Promise<void>;
}

let places = 0;

function freshPlace(): SinkPlace {
  places += 1;
  return { pipeline: `pipeline-${places}`, stream: "/v1/stream/in" };
}

async function isLost(work: Promise<unknown>): Promise<boolean> {
  try {
    await work;
    return false;
  } catch (error) {
    if (isHapaxError(error, "lease_lost")) return true;
    throw error;
  }
}

async function committed<Tx>(target: SinkTarget<Tx>, prefix: string): Promise<readonly string[]> {
  return (await target.read()).filter((text) => text.startsWith(prefix));
}

/**
 * Every case of the contract of sinks.
 *
 * ```ts
 * import { sinkConformance } from "hapax/testing";
 *
 * console.assert(sinkConformance.length > 0);
 * ```
 */
export const sinkConformance: readonly SinkCase[] = [
  {
    title: "an effect is there with its position, and both are gone with an error",
    run: async (target) => {
      const place = freshPlace();
      const sink = await target.open();
      assert.equal(await sink.take(place, 1), undefined);
      await sink.move(place, 1, undefined, async (tx) => {
        await target.write(tx, `${place.pipeline} one`);
        return "a";
      });
      await assert.rejects(
        sink.move(place, 1, "a", async (tx) => {
          await target.write(tx, `${place.pipeline} two`);
          throw new Error("it broke");
        }),
        /it broke/,
      );
      assert.deepEqual(await committed(target, place.pipeline), [`${place.pipeline} one`]);
      assert.equal(await (await target.open()).take(place, 1), "a");
    },
  },
  {
    title: "a smaller token moves nothing, and its effects do not stay",
    run: async (target) => {
      const place = freshPlace();
      const [old, heir] = [await target.open(), await target.open()];
      await old.take(place, 1);
      assert.equal(await heir.take(place, 2), undefined);
      const late = old.move(place, 1, undefined, async (tx) => {
        await target.write(tx, `${place.pipeline} late`);
        return "a";
      });
      assert.equal(await isLost(late), true);
      assert.equal(await isLost(old.take(place, 1)), true);
      await heir.move(place, 2, undefined, async (tx) => {
        await target.write(tx, `${place.pipeline} heir`);
        return "b";
      });
      assert.deepEqual(await committed(target, place.pipeline), [`${place.pipeline} heir`]);
    },
  },
  {
    title: "a position moves only from where it is",
    run: async (target) => {
      const place = freshPlace();
      const sink = await target.open();
      await sink.take(place, 1);
      const moveTo = (from: string | undefined, to: string) =>
        sink.move(place, 1, from, async (tx) => {
          await target.write(tx, `${place.pipeline} ${to}`);
          return to;
        });
      await moveTo(undefined, "a");
      assert.equal(await isLost(moveTo(undefined, "a")), true);
      assert.equal(await isLost(moveTo("b", "c")), true);
      await moveTo("a", "b");
      const effects = [`${place.pipeline} a`, `${place.pipeline} b`];
      assert.deepEqual(await committed(target, place.pipeline), effects);
    },
  },
  {
    title:
      "of many that move at once with tokens of their own, only the newest has effects from then on",
    run: async (target) => {
      const place = freshPlace();
      const sinks = await Promise.all(Array.from({ length: 6 }, () => target.open()));
      let at: string | undefined;
      for (const [index, sink] of sinks.entries()) {
        at = await sink.take(place, index + 1);
        const all = sinks.slice(0, index + 1).map((one, token) =>
          isLost(
            one.move(place, token + 1, at, async (tx) => {
              await target.write(tx, `${place.pipeline} ${token}`);
              return `p${index}`;
            }),
          ),
        );
        const lost = await Promise.all(all);
        assert.deepEqual(lost, [...Array.from({ length: index }, () => true), false]);
      }
      assert.equal((await committed(target, place.pipeline)).length, sinks.length);
    },
  },
  {
    title: "the table is made once when several sinks start at the same time",
    run: async (target) => {
      await Promise.all(Array.from({ length: 4 }, async () => (await target.open()).prepare()));
    },
  },
];
