// The races, each in interleavings of the engine that a seed decides, and in tries over real sockets: 1,000 and 500 with
// HAPAX_LONG, a quarter of them without. A failure names its seed: `explore(seed, …)` with that seed shows it again. PROTOCOL.md §2
import { Agent, type IncomingMessage, request } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { AppendCommand } from "../src/streams/core/append.ts";
import type { Offset, StreamName } from "../src/streams/core/types.ts";
import type { Engine } from "../src/streams/engine/engine.ts";
import { WholeEngine } from "../src/streams/engine/whole-engine.ts";
import type { AppendOutcome } from "../src/streams/engine/outcomes.ts";
import { isHapaxError } from "../src/base/errors.ts";
import { type NodeServer, startNodeServer } from "../src/streams/runtimes/node.ts";
import { SseDecoder } from "../src/protocol/sse-decoder.ts";
import { openMemoryStore } from "../src/streams/stores/memory.ts";
import type { Store } from "../src/streams/store.ts";
import {
  appendCommand,
  createCommand,
  producerClaim,
  joinedText,
} from "../src/testing/commands.ts";
import { createSeededRandom, type SeededRandom } from "../src/testing/seeded-random.ts";
import { createVirtualClock } from "../src/testing/testing.ts";
import { type GatedStore, openGatedStore } from "./kits/gated-store.ts";
import { turn } from "./kits/watch.ts";

const isLong = process.env["HAPAX_LONG"] !== undefined;
const SEEDS = isLong ? 1000 : 250;
const TRIES = isLong ? 500 : 125;
const A = "/a" as StreamName;
const forkOf = (sourceName: StreamName, anchor?: number) => ({
  sourceName,
  anchor: anchor as Offset | undefined,
  subOffset: 0,
});

/** One of several that run at once. `pause` is where the others may run, or a commit may land. */
type Actor = (pause: () => Promise<void>) => Promise<void>;

class World {
  readonly seed: number;
  readonly random: SeededRandom;
  readonly store: GatedStore = openGatedStore(openMemoryStore());
  readonly engine: Engine;

  constructor(seed: number) {
    this.seed = seed;
    this.random = createSeededRandom(seed);
    const clock = createVirtualClock(1);
    this.engine = new WholeEngine({ store: this.store, clock, jsonRecordsEnd: () => undefined });
  }

  /** Lets commits through until the promise settles. */
  async durably<T>(promise: Promise<T>): Promise<T> {
    let isWaiting = true;
    const stop = (): void => {
      isWaiting = false;
    };
    promise.then(stop, stop);
    for (await turn(); isWaiting; await turn()) await this.store.release();
    return promise;
  }

  /** Runs the actors; the seed decides who goes on, and when a commit lands. */
  async run(actors: readonly Actor[]): Promise<void> {
    const paused: (() => void)[] = [];
    const pause = (): Promise<void> => new Promise((resolve) => paused.push(resolve));
    let running = actors.length;
    const ends = actors.map(async (actor) => {
      await pause();
      await actor(pause).finally(() => (running -= 1));
    });
    const all = Promise.all(ends);
    all.catch(() => undefined);
    while (running > 0) {
      if (paused.length + this.store.waiting.length === 0) {
        await turn();
        if (paused.length + this.store.waiting.length > 0 || running === 0) continue;
        throw new Error(`${running} of ${actors.length} wait for nothing`);
      }
      const choice = this.random.below(paused.length + this.store.waiting.length);
      if (choice < paused.length) paused.splice(choice, 1)[0]?.();
      else await this.store.release();
      for (let ticks = this.random.below(12); ticks > 0; ticks -= 1) await Promise.resolve();
    }
    await all;
    while (this.store.waiting.length > 0) await this.store.release();
    await this.engine.settled();
  }

  async read(name: StreamName): Promise<string> {
    const look = await this.engine.look(name);
    if (look.kind !== "found") return look.kind;
    return joinedText((await this.engine.read(look.state, 0 as Offset, 1_000_000)).appends);
  }

  append(text: string, parts: Partial<AppendCommand> = {}): Promise<AppendOutcome> {
    return this.engine.append(A, appendCommand(text, parts));
  }
}

async function explore(count: number, script: (world: World) => Promise<void>): Promise<void> {
  for (let seed = 1; seed <= count; seed += 1) {
    const world = new World(seed);
    try {
      await script(world);
    } catch (cause) {
      throw new Error(`seed ${seed}: ${String(cause)}`, { cause });
    }
    world.store.open();
    await world.engine.close();
  }
}

/** Follows a stream from an offset to its end, as long-poll does: look, read, else wait to be told. */
async function follow(world: World, pause: () => Promise<void>): Promise<string> {
  let text = "";
  let position = 0 as Offset;
  for (;;) {
    await pause();
    const look = await world.engine.look(A);
    if (look.kind !== "found") return text;
    const { tail, isClosed } = world.engine.view(look.state);
    if (position >= tail && !isClosed) {
      await new Promise<void>((resolve) => {
        const leave = world.engine.listen(look.state, () => {
          leave();
          resolve();
        });
      });
    }
    await pause();
    const page = await world.engine.read(look.state, position, 5).catch((error: unknown) => {
      // Deleted between the look and the read: the reader gets an error and ends.
      if (isHapaxError(error, "stream_not_found")) return undefined;
      throw error;
    });
    if (page === undefined) return text;
    text += joinedText(page.appends);
    position = page.next;
    if (page.isAtEnd) return text;
  }
}

function shuffled<T>(items: readonly T[], random: SeededRandom): T[] {
  const mixed = [...items];
  for (let last = mixed.length - 1; last > 0; last -= 1) {
    const other = random.below(last + 1);
    [mixed[last], mixed[other]] = [mixed[other] as T, mixed[last] as T];
  }
  return mixed;
}

const acceptedTexts = (outcomes: ReadonlyMap<string, AppendOutcome>): string[] =>
  [...outcomes].filter(([, { kind }]) => kind === "accepted").map(([text]) => text);

/** Actors that append one text each and write down what they were answered. */
function writers(
  world: World,
  texts: readonly string[],
  outcomes: Map<string, AppendOutcome>,
): Actor[] {
  return texts.map((text) => async (pause) => {
    await pause();
    outcomes.set(text, await world.append(text));
  });
}

describe("seeded interleavings", { timeout: 60_000 }, () => {
  test("close during append: a closed stream never reopens and ends with its close", async () => {
    await explore(SEEDS, async (world) => {
      await world.durably(world.engine.create(createCommand(A)));
      const outcomes = new Map<string, AppendOutcome>();
      const close: Actor = async () => {
        outcomes.set("end;", await world.append("end;", { closes: true }));
        for (const text of ["late;", "later;"]) {
          expect((await world.append(text)).kind).toBe("closed");
        }
      };
      await world.run([...writers(world, ["a;", "b;", "c;", "d;"], outcomes), close]);
      for (const { kind } of outcomes.values()) expect(["accepted", "closed"]).toContain(kind);
      const text = await world.read(A);
      expect(text.endsWith("end;")).toBe(true);
      expect((text.match(/\w+;/g) ?? []).toSorted()).toEqual(acceptedTexts(outcomes).toSorted());
      expect(await world.engine.look(A)).toMatchObject({ isClosed: true, tail: text.length });
    });
  });

  test("delete during append: no zombie, no hang, no dead path", async () => {
    await explore(SEEDS, async (world) => {
      await world.durably(world.engine.create(createCommand(A)));
      const outcomes = new Map<string, AppendOutcome>();
      const remove: Actor = async () => {
        expect((await world.engine.delete(A)).kind).toBe("deleted");
      };
      const reader: Actor = async (pause) => {
        // A reader of the stream receives its end and does not wait on.
        await follow(world, pause);
      };
      await world.run([...writers(world, ["a;", "b;", "c;", "d;"], outcomes), remove, reader]);
      for (const { kind } of outcomes.values()) expect(["accepted", "missing"]).toContain(kind);
      expect(await world.read(A)).toBe("missing");
      expect(world.engine.world.byId.size).toBe(0);
      const again = await world.durably(world.engine.create(createCommand(A, { text: "new" })));
      expect(again.kind).toBe("created");
      expect(await world.read(A)).toBe("new");
    });
  });

  test("fork during append: no reference is lost, with deletions at any time", async () => {
    await explore(SEEDS, async (world) => {
      await world.durably(world.engine.create(createCommand(A, { text: "0;" })));
      const outcomes = new Map<string, AppendOutcome>();
      const created: StreamName[] = [];
      const forks = [forkOf(A), forkOf(A, 0), forkOf(A, 2)].map((fork, index): Actor => {
        const name = `/fork${index}` as StreamName;
        return async () => {
          const { kind } = await world.engine.create(createCommand(name, { fork, text: "own;" }));
          expect(["created", "source_missing", "source_deleted"]).toContain(kind);
          if (kind === "created") created.push(name);
        };
      });
      const isDeletedEarly = world.random.below(2) === 0;
      const remove: Actor = async () => {
        if (isDeletedEarly) await world.engine.delete(A);
      };
      await world.run([...writers(world, ["a;", "b;", "c;"], outcomes), ...forks, remove]);
      if (!isDeletedEarly) await world.durably(world.engine.delete(A));
      const order = acceptedTexts(outcomes);
      for (const name of created) {
        const text = await world.read(name);
        // Whole appends of the source, each at most once, and then its own.
        expect(text).toMatch(/^(0;([abc];)*)?own;$/);
        const inherited = text.match(/[abc];/g) ?? [];
        expect(new Set(inherited).size).toBe(inherited.length);
        expect(order).toEqual(expect.arrayContaining(inherited));
      }
      for (const name of created) await world.durably(world.engine.delete(name));
      expect(world.engine.world.byId.size).toBe(0);
    });
  });

  test("150 streams with 6 concurrent appends each: every byte is where it belongs", async () => {
    await explore(SEEDS, async (world) => {
      const names = Array.from({ length: 150 }, (_, index) => `/s${index}` as StreamName);
      await world.durably(
        Promise.all(names.map((name) => world.engine.create(createCommand(name)))),
      );
      const jobs = names.flatMap((name) =>
        [0, 1, 2, 3, 4, 5].map((number) => ({ name, text: `${name}#${number};` })),
      );
      const placed = new Map<StreamName, Map<number, string>>(
        names.map((name) => [name, new Map()]),
      );
      const answers = shuffled(jobs, world.random).map(async ({ name, text }) => {
        // A few turns later or earlier: who comes first is for the seed to decide.
        for (let turns = world.random.below(4); turns > 0; turns -= 1) await turn();
        const outcome = await world.engine.append(name, appendCommand(text));
        if (outcome.kind === "accepted") placed.get(name)?.set(outcome.tail, text);
      });
      await world.durably(Promise.all(answers));
      for (const [name, texts] of placed) {
        const tails = [...texts.keys()].toSorted((one, other) => one - other);
        const expected = tails.map((tail) => texts.get(tail)).join("");
        const found = await world.read(name);
        if (tails.length !== 6 || found !== expected) expect([tails, found]).toBe(expected);
      }
    });
  });

  test("append and close in one with readers at the tail: the last record always arrives", async () => {
    await explore(SEEDS, async (world) => {
      await world.durably(world.engine.create(createCommand(A)));
      const read: string[] = [];
      const reader: Actor = async (pause) => {
        read.push(await follow(world, pause));
      };
      const writer: Actor = async (pause) => {
        for (const text of ["one;", "two;"]) {
          await pause();
          void world.append(text);
        }
        await pause();
        expect((await world.append("last;", { closes: true })).kind).toBe("accepted");
      };
      await world.run([reader, reader, reader, writer]);
      expect(read).toEqual(read.map(() => "one;two;last;"));
      expect([read.length, world.engine.liveReaders]).toEqual([3, 0]);
    });
  });

  test("recreate after delete: nothing of the old one, neither data nor producers nor Stream-Seq", async () => {
    await explore(SEEDS, async (world) => {
      await world.durably(world.engine.create(createCommand(A)));
      const claimed = (sequence: number): Partial<AppendCommand> => ({
        producer: producerClaim("p", 0, sequence),
        streamSeq: `${sequence}`,
      });
      for (const sequence of [0, 1, 2]) {
        await world.durably(world.append("old;", claimed(sequence)));
      }
      const kinds = new Map<string, string>();
      const recreate: Actor = async (pause) => {
        const deletion = world.engine.delete(A);
        if (world.random.below(2) === 0) await deletion;
        await pause();
        expect((await world.engine.create(createCommand(A))).kind).toBe("created");
        await deletion;
      };
      const retry: Actor = async () => {
        kinds.set("retry", (await world.append("retry;", claimed(2))).kind);
      };
      const fresh: Actor = async () => {
        kinds.set("fresh", (await world.append("fresh;", claimed(0))).kind);
      };
      await world.run([recreate, retry, fresh, fresh]);
      expect(["duplicate", "missing", "gap"]).toContain(kinds.get("retry"));
      const isFresh = (await world.read(A)) === "fresh;";
      const { kind } = await world.durably(world.append("fresh;", claimed(0)));
      expect(kind).toBe(isFresh ? "duplicate" : "accepted");
      expect(await world.read(A)).toBe("fresh;");
    });
  });
});

/** The memory store, but a commit takes a few turns of the event loop, as a disk does. */
function openSlowStore(): Store {
  const inner = openMemoryStore();
  const random = createSeededRandom(1);
  return {
    ...inner,
    async commit(changes) {
      for (let turns = random.below(4); turns > 0; turns -= 1) await turn();
      await inner.commit(changes);
    },
  };
}

interface Answer {
  readonly status: number;
  readonly text: string;
  readonly next: string;
  readonly isClosed: boolean;
}

describe("tries over real sockets", { timeout: 60_000 }, () => {
  let server: NodeServer;
  const agent = new Agent({ keepAlive: true, maxSockets: 400 });
  const fault: unknown[] = [];

  beforeAll(async () => {
    const onFault = (error: unknown): void => void fault.push(error);
    server = await startNodeServer({ port: 0, store: openSlowStore(), onFault });
  });

  afterAll(async () => {
    agent.destroy();
    await server.stop();
    expect(fault).toEqual([]);
  });

  function send(
    method: string,
    path: string,
    body = "",
    headers: Readonly<Record<string, string>> = {},
  ): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const type: Record<string, string> = body === "" ? {} : { "content-type": "text/plain" };
      const options = { method, agent, headers: { ...type, ...headers } };
      const sent = request(
        `${server.url}/v1/stream${path}`,
        options,
        (message: IncomingMessage) => {
          let text = "";
          message.setEncoding("utf8");
          message.on("data", (chunk: string) => (text += chunk));
          message.on("error", reject);
          message.on("end", () => {
            const next = message.headers["stream-next-offset"];
            const isClosed = message.headers["stream-closed"] === "true";
            resolve({
              status: message.statusCode ?? 0,
              text,
              next: typeof next === "string" ? next : "",
              isClosed,
            });
          });
        },
      );
      sent.on("error", reject);
      sent.end(body);
    });
  }

  const create = (path: string, headers: Readonly<Record<string, string>> = {}): Promise<Answer> =>
    send("PUT", path, "", { "content-type": "text/plain", ...headers });
  const read = async (path: string): Promise<string> => (await send("GET", path)).text;
  const CLOSES = { "stream-closed": "true" };

  /** Runs the tries, 25 at a time, each with a path of its own. */
  async function tryAll(what: string, attempt: (path: string) => Promise<void>): Promise<void> {
    const numbers = Array.from({ length: TRIES }, (_, index) => index);
    const worker = async (): Promise<void> => {
      for (let next = numbers.shift(); next !== undefined; next = numbers.shift()) {
        await attempt(`/${what}/${next}`);
      }
    };
    await Promise.all(Array.from({ length: 25 }, worker));
  }

  /** Sends the appends and the others at once, and gives the texts that were stored. */
  async function appendAmong(
    path: string,
    texts: readonly string[],
    refusal: number,
    ...others: readonly (() => Promise<unknown>)[]
  ): Promise<string[]> {
    const stored: string[] = [];
    const appends = texts.map((text) => async (): Promise<void> => {
      const { status } = await send("POST", path, text);
      expect([204, refusal]).toContain(status);
      if (status === 204) stored.push(text);
    });
    const all = [...appends.slice(0, 2), ...others, ...appends.slice(2)];
    await Promise.all(all.map((run) => run()));
    return stored;
  }

  test("close during append: a closed stream never reopens and ends with its close", async () => {
    await tryAll("close", async (path) => {
      await create(path);
      const close = async (): Promise<void> => {
        expect((await send("POST", path, "end;", CLOSES)).status).toBe(204);
        expect((await send("POST", path, "late;")).status).toBe(409);
      };
      const stored = await appendAmong(path, ["a;", "b;", "c;", "d;"], 409, close);
      const page = await send("GET", path);
      expect([page.isClosed, page.text.endsWith("end;")]).toEqual([true, true]);
      expect((page.text.match(/\w+;/g) ?? []).toSorted()).toEqual([...stored, "end;"].toSorted());
      expect((await send("POST", path, "", CLOSES)).status).toBe(204);
    });
  });

  test("delete during append: no zombie, no hang, no dead path", async () => {
    await tryAll("delete", async (path) => {
      await create(path);
      const remove = async (): Promise<void> => {
        expect((await send("DELETE", path)).status).toBe(204);
      };
      await appendAmong(path, ["a;", "b;", "c;", "d;"], 404, remove);
      expect((await send("HEAD", path)).status).toBe(404);
      expect((await create(path)).status).toBe(201);
      expect((await send("POST", path, "new")).status).toBe(204);
      expect(await read(path)).toBe("new");
    });
  });

  test("fork during append: no reference is lost when the source goes", async () => {
    await tryAll("fork", async (path) => {
      await create(path);
      expect((await send("POST", path, "0;")).status).toBe(204);
      const fork = async (): Promise<void> => {
        const forked = { "stream-forked-from": `/v1/stream${path}` };
        expect((await create(`${path}/fork`, forked)).status).toBe(201);
      };
      await appendAmong(path, ["a;", "b;", "c;"], 0, fork);
      const whole = await read(path);
      const before = await read(`${path}/fork`);
      expect(whole.startsWith(before)).toBe(true);
      expect(before).toMatch(/^0;([abc];)*$/);
      expect((await send("DELETE", path)).status).toBe(204);
      expect((await send("GET", path)).status).toBe(410);
      expect((await send("POST", `${path}/fork`, "own;")).status).toBe(204);
      expect(await read(`${path}/fork`)).toBe(`${before}own;`);
      expect((await send("DELETE", `${path}/fork`)).status).toBe(204);
      expect((await create(path)).status).toBe(201);
    });
  });

  test("150 streams with 6 concurrent appends each: every byte is where it belongs", async () => {
    // Each stream of each round is one try: 4 rounds of 150 streams are 600.
    for (let round = 0; round < 4; round += 1) {
      const paths = Array.from({ length: 150 }, (_, index) => `/many/${round}/${index}`);
      await Promise.all(paths.map((path) => create(path)));
      const sent = paths.flatMap((path) =>
        [0, 1, 2, 3, 4, 5].map(async (number) => {
          const text = `${path}#${number};`;
          const { status, next } = await send("POST", path, text);
          expect(status).toBe(204);
          return { path, text, next };
        }),
      );
      const placed = await Promise.all(sent);
      for (const path of paths) {
        const order = placed
          .filter((entry) => entry.path === path)
          .toSorted((one, other) => (one.next < other.next ? -1 : 1));
        expect(await read(path)).toBe(order.map(({ text }) => text).join(""));
      }
    }
  });

  /** Everything that long-poll gives from an offset to the end of the stream. */
  async function longPoll(path: string, from: string): Promise<string> {
    let text = "";
    for (let offset = from; ;) {
      const answer = await send("GET", `${path}?offset=${offset}&live=long-poll`);
      expect([200, 204]).toContain(answer.status);
      text += answer.text;
      offset = answer.next;
      if (answer.isClosed) return text;
    }
  }

  /** Everything that Server-Sent Events give; the server ends the connection after the close. */
  async function listen(path: string, from: string): Promise<string> {
    const { status, text } = await send("GET", `${path}?offset=${from}&live=sse`);
    expect(status).toBe(200);
    expect(text).toContain('"streamClosed":true');
    const events = [...new SseDecoder().push(new TextEncoder().encode(text))];
    return events.map(({ event, data }) => (event === "data" ? data : "")).join("");
  }

  test("append and close in one with readers at the tail: the last record always arrives", async () => {
    await tryAll("tail", async (path) => {
      await create(path);
      const { next } = await send("POST", path, "before;");
      const readers = [longPoll, listen, longPoll, listen].map((follow) => follow(path, next));
      const write = async (): Promise<void> => {
        expect((await send("POST", path, "one;")).status).toBe(204);
        expect((await send("POST", path, "last;", CLOSES)).status).toBe(204);
      };
      const [, ...texts] = await Promise.all([write(), ...readers]);
      expect(texts).toEqual(texts.map(() => "one;last;"));
    });
  });

  test("recreate after delete: nothing of the old one, neither data nor producers nor Stream-Seq", async () => {
    const claimed = (sequence: number): Record<string, string> => ({
      "producer-id": "p",
      "producer-epoch": "0",
      "producer-seq": String(sequence),
      "stream-seq": String(sequence),
    });
    await tryAll("again", async (path) => {
      await create(path);
      let old = "";
      for (const sequence of [0, 1, 2]) {
        const { status, next } = await send("POST", path, "old old;", claimed(sequence));
        expect(status).toBe(200);
        old = next;
      }
      const recreate = async (): Promise<void> => {
        const deletion = send("DELETE", path);
        await Promise.race([deletion, turn()]);
        const [{ status }] = await Promise.all([deletion, send("HEAD", path)]);
        expect(status).toBe(204);
        expect((await create(path)).status).toBe(201);
      };
      const retry = send("POST", path, "retry;", claimed(2));
      const [, again] = await Promise.all([recreate(), retry]);
      // A duplicate in the old life, nothing there in between, a gap in the new one.
      expect([204, 404, 409]).toContain(again.status);
      expect((await send("POST", path, "fresh;", claimed(0))).status).toBe(200);
      expect(await read(path)).toBe("fresh;");
      expect((await send("GET", `${path}?offset=${old}`)).status).toBe(410);
    });
  });
});
