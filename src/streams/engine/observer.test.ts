import { describe, expect, test } from "vitest";
import type { Change } from "../core/change.ts";
import type { StreamState } from "../core/stream.ts";
import type { Offset, StreamName, TimeMs } from "../core/types.ts";
import { openMemoryStore } from "../stores/memory.ts";
import type { Store } from "../store.ts";
import { appendCommand, createCommand, producerClaim, joinedText } from "../../testing/commands.ts";
import { openFaultyStore } from "../../../test/kits/faulty-store.ts";
import { openGatedStore } from "../../../test/kits/gated-store.ts";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import { turn, watch } from "../../../test/kits/watch.ts";
import type { Engine } from "./engine.ts";
import { WholeEngine } from "./whole-engine.ts";
import type { AppendObserver } from "./observer.ts";

const A = "/a" as StreamName;
const LOG = "/log" as StreamName;

/** An engine over a store that has the streams "/a" and "/log". */
async function openEngine(store: Store): Promise<Engine> {
  const engine = new WholeEngine({
    store,
    clock: createVirtualClock(),
    jsonRecordsEnd: () => undefined,
  });
  for (const name of [A, LOG]) await engine.create(createCommand(name));
  return engine;
}

async function read(engine: Engine, name: StreamName): Promise<string> {
  const look = await engine.look(name);
  if (look.kind !== "found") return look.kind;
  return joinedText((await engine.read(look.state, 0 as Offset, 1000)).appends);
}

/** Writes down each append to "/a" in "/log", which must exist; and a note before it. */
class Bookkeeper implements AppendObserver {
  readonly isFollowing = true;
  readonly #engine: Engine;

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  before(state: StreamState, atMs: TimeMs): readonly Change[] {
    return state.name === A ? [this.#note(`before ${state.tail};`, atMs)] : [];
  }

  after(state: StreamState, atMs: TimeMs): readonly Change[] {
    return state.name === A ? [this.#note(`after ${state.tail};`, atMs)] : [];
  }

  acked(changes: readonly Change[]): readonly Change[] {
    return changes;
  }

  #note(text: string, atMs: TimeMs): Change {
    const stream = this.#engine.world.streams.get(LOG)?.id;
    if (stream === undefined) throw new Error("there is no log");
    const { data } = appendCommand(text);
    const rest = { closes: false, producer: undefined, streamSeq: undefined, key: undefined };
    return { kind: "appended", atMs, stream, data, ...rest };
  }
}

describe("what an append causes", () => {
  test("is committed with it, in order", async () => {
    const inner = openMemoryStore();
    await openEngine(inner);
    const store = openGatedStore(inner);
    const engine = new WholeEngine({
      store,
      clock: createVirtualClock(),
      jsonRecordsEnd: () => undefined,
    });
    engine.observe(new Bookkeeper(engine));
    const answer = watch(engine.append(A, appendCommand("xyz")));
    await store.arrival();
    expect(store.waiting.map((changes) => changes.length)).toEqual([3]);
    await turn();
    expect(answer.isWaiting).toBe(true);
    await store.release();
    await turn();
    expect(await read(engine, LOG)).toBe("before 0;after 3;");
    await engine.close();
  });

  test("is lost with it when the commit fails, and a refused append causes nothing", async () => {
    const store = openFaultyStore(openMemoryStore());
    const engine = await openEngine(store);
    engine.observe(new Bookkeeper(engine));
    await engine.append(A, appendCommand("y", { contentType: "text/html" }));
    await engine.append(A, appendCommand("y", { producer: producerClaim("p", 0, 4) }));
    expect(await read(engine, LOG)).toBe("");
    store.failNextCommit();
    const answer = engine.append(A, appendCommand("xyz"));
    await expect(answer).rejects.toMatchObject({ code: "writes_stopped" });
    expect([await read(engine, A), await read(engine, LOG)]).toEqual(["", ""]);
    await engine.close();
  });
});
