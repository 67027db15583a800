// Several streams over one connection. PROTOCOL.md §7.12, GUARANTEES.md G180
import { afterEach, describe, expect, test } from "vitest";
import { LIMITS } from "../../protocol/limits.ts";
import { createServer, type HapaxServer } from "../server.ts";
import type { Store } from "../store.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { createSeededRandom } from "../../testing/seeded-random.ts";
import type { Authorize } from "../access/identity.ts";
import type { Exchange, ServerAnswer } from "./exchange.ts";
import { ManualClock, ManualSink } from "../../../test/kits/live-stage.ts";

const servers: HapaxServer[] = [];
const JSON_TYPE = { "content-type": "application/json" };

afterEach(async () => {
  for (const server of servers.splice(0)) await server.close();
});

interface Delivery {
  readonly id: string;
  readonly event: string;
  readonly data: {
    readonly stream: string;
    readonly records?: readonly unknown[];
    readonly nextOffset?: string;
    readonly offset?: string;
    readonly closed?: true;
    readonly code?: string;
  };
}

/** Ids are of the browser's EventSource, so our decoder has none. */
function deliveries(sink: ManualSink): Delivery[] {
  const decoder = new TextDecoder();
  const text = sink.writes.map((bytes) => decoder.decode(bytes, { stream: true })).join("");
  const events = text.split("\n\n").slice(0, -1);
  return events
    .filter((one) => !one.startsWith(":"))
    .map((one) => {
      const lines = one.split("\n");
      const field = (name: string): string =>
        lines
          .filter((line) => line.startsWith(`${name}:`))
          .map((line) => line.slice(name.length + 1).trimStart())
          .join("\n");
      const data = JSON.parse(field("data")) as Delivery["data"];
      return { id: field("id"), event: field("event"), data };
    });
}

class World {
  readonly clock = new ManualClock();
  readonly server: HapaxServer;
  readonly #aborts = new Set<() => void>();

  constructor(authorize?: Authorize, store: Store = openMemoryStore()) {
    this.server = createServer(
      {
        store,
        clock: this.clock,
        random: { unit: () => 0.5, id: () => "id" },
        courier: { deliver: () => Promise.resolve({ kind: "refused", reason: "none here" }) },
        address: "127.0.0.1",
        publicUrl: () => "http://test",
        authorize,
        onFault: (error) => {
          throw error;
        },
      },
      {},
    );
    servers.push(this.server);
  }

  ask(
    method: string,
    target: string,
    body = "",
    headers: Readonly<Record<string, string>> = {},
  ): Promise<ServerAnswer> {
    const [path = "", query = ""] = target.split("?");
    const sent: Record<string, string> = { ...JSON_TYPE, ...headers };
    const exchange: Exchange = {
      method,
      path,
      query,
      baseUrl: "http://test",
      authority: "localhost",
      header: (name) => sent[name],
      hasBody: body !== "",
      body: () => Promise.resolve(new TextEncoder().encode(body)),
      onAbort: (run) => this.#aborts.add(run),
    };
    return this.server.handle(exchange);
  }

  async follow(
    names: readonly string[],
    { id, isTaking = true, headers = {}, offset = "-1" }: FollowOptions = {},
  ): Promise<ManualSink> {
    const query = names.map((name) => `stream=${name}&offset=${offset}`).join("&");
    const sent = id === undefined ? headers : { ...headers, "last-event-id": id };
    const answer = await this.ask("GET", `/_hapax/follow?${query}`, "", sent);
    if (!("live" in answer)) throw new Error(`answered ${answer.status}`);
    const sink = new ManualSink();
    sink.isTaking = isTaking;
    answer.live(sink);
    await settle();
    return sink;
  }
}

interface FollowOptions {
  readonly id?: string;
  readonly isTaking?: boolean;
  readonly headers?: Readonly<Record<string, string>>;
  readonly offset?: string;
}

/** Lets everything run that is ready to run. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 4; turn += 1) {
    await new Promise((resolve) => {
      setImmediate(resolve);
    });
  }
}

async function withStreams(count: number): Promise<{ world: World; names: string[] }> {
  const world = new World();
  const names = Array.from({ length: count }, (_, n) => `/s/${n}`);
  for (const name of names) await world.ask("PUT", name);
  return { world, names };
}

/** What a reader has seen: the records of each stream, and where it goes on. */
class Seen {
  readonly records = new Map<string, unknown[]>();
  readonly #offsets = new Map<string, string>();
  id: string | undefined;

  take(sink: ManualSink, count = Infinity): void {
    for (const { id, event, data } of deliveries(sink).slice(0, count)) {
      expect(event).toBe("data");
      // Each event begins where the one before it of its stream has ended, over all connections.
      const before = this.#offsets.get(data.stream);
      if (before !== undefined) expect(data.offset).toBe(before);
      this.#offsets.set(data.stream, data.nextOffset ?? "");
      const kept = this.records.get(data.stream) ?? [];
      this.records.set(data.stream, [...kept, ...(data.records ?? [])]);
      this.id = id;
    }
  }
}

describe("several streams over one connection", () => {
  test("G180 each record comes once and in order in its stream, over cuts at any event, with slow and with quick readers", async () => {
    for (let seed = 1; seed <= 25; seed += 1) {
      const random = createSeededRandom(seed);
      const below = (limit: number): number => random.below(limit);
      const { world, names } = await withStreams(2 + below(4));
      const written = new Map(names.map((name): [string, unknown[]] => [name, []]));
      const append = async (): Promise<void> => {
        const name = names[below(names.length)] ?? "";
        const record = `${name}-${written.get(name)?.length ?? 0}`;
        written.get(name)?.push(record);
        // Some are larger than an event while a reader catches up.
        const filler = random.unit() < 0.1 ? " ".repeat(LIMITS.sseEventBytesMax / 2) : "";
        await world.ask("POST", name, `[${JSON.stringify(record)}${filler}]`);
      };
      const seen = new Seen();
      for (let connection = 0; connection < 6; connection += 1) {
        for (let more = below(8); more > 0; more -= 1) await append();
        const isTaking = random.unit() < 0.5;
        const options = seen.id === undefined ? { isTaking } : { id: seen.id, isTaking };
        const sink = await world.follow(names, options);
        for (let more = below(12); more > 0; more -= 1) {
          await append();
          if (random.unit() < 0.3) await settle();
          if (random.unit() < 0.2) sink.drain();
          if (random.unit() < 0.2) sink.isTaking = false;
        }
        await settle();
        const { length } = deliveries(sink);
        // The connection is cut behind any of its events.
        seen.take(sink, below(length + 1));
        sink.leave();
      }
      const options = seen.id === undefined ? {} : { id: seen.id };
      const last = await world.follow(names, options);
      await settle();
      seen.take(last);
      expect(Object.fromEntries(seen.records), `seed ${seed}`).toEqual(Object.fromEntries(written));
    }
  });

  test("G180 a reader that takes nothing holds a bounded number of bytes, however many streams it follows, and is cut", async () => {
    const { world, names } = await withStreams(20);
    const large = JSON.stringify("x".repeat(500_000));
    for (const name of names) await world.ask("POST", name, `[${large}]`);
    const sink = await world.follow(names, { isTaking: false });
    for (const name of names) await world.ask("POST", name, `[${large}]`);
    await settle();
    expect(sink.queuedBytes).toBeGreaterThan(LIMITS.readerBufferBytesMax);
    expect(sink.queuedBytes).toBeLessThan(LIMITS.readerBufferBytesMax + 600_000);
    expect(sink.isWatched).toBe(true);
    sink.stick();
    expect(sink.ending).toBe("cut");
  });

  test("G180 a reader that was slow gets all that it has missed", async () => {
    const { world, names } = await withStreams(3);
    const sink = await world.follow(names, { isTaking: false });
    const large = JSON.stringify("x".repeat(700_000));
    for (const name of names) await world.ask("POST", name, `[1,${large}]`);
    for (const name of names) await world.ask("POST", name, "[2]");
    await settle();
    sink.drain();
    await settle();
    const seen = new Seen();
    seen.take(sink);
    for (const name of names) {
      expect(seen.records.get(name)?.map((record) => String(record).length)).toEqual([
        1, 700_000, 1,
      ]);
    }
  });

  test("G180 what comes while its stream is read is sent behind it, and waits for no other append", async () => {
    const store = openMemoryStore();
    const read = store.read.bind(store);
    let open: () => void = () => undefined;
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    store.read = async (...range) => {
      await gate;
      return read(...range);
    };
    const world = new World(undefined, store);
    await world.ask("PUT", "/s/0");
    await world.ask("POST", "/s/0", "[1]");
    const sink = await world.follow(["/s/0"]);
    await world.ask("POST", "/s/0", "[2]");
    await settle();
    open();
    await settle();
    const seen = new Seen();
    seen.take(sink);
    expect(seen.records.get("/s/0")).toEqual([1, 2]);
  });

  test("G180 a stream that is far behind keeps no other one waiting for more than a page", async () => {
    const { world, names } = await withStreams(2);
    const [long = "", short = ""] = names;
    const part = JSON.stringify("x".repeat(LIMITS.sseEventBytesMax - 100));
    for (let n = 0; n < 8; n += 1) await world.ask("POST", long, `[${part}]`);
    await world.ask("POST", short, "[1]");
    const sink = await world.follow(names);
    await settle();
    const order = deliveries(sink).map(({ data }) => data.stream);
    expect(order.slice(0, 2)).toEqual([long, short]);
    expect(order.filter((stream) => stream === long)).toHaveLength(8);
  });

  test("G180 all readers of an append are given the same bytes, which were made once", async () => {
    const { world, names } = await withStreams(2);
    const sinks = [await world.follow(names), await world.follow([...names].toReversed())];
    await world.ask("POST", names[0] ?? "", "[7]");
    await settle();
    const [one, other] = sinks.map((sink) => sink.writes.at(-1));
    expect(new TextDecoder().decode(one)).toContain('"records":[7]');
    expect(other).toBe(one);
  });

  test("§7.12 the connection ends with the time of a reader, at a stop, and when its client has gone; nothing is left behind", async () => {
    const { world, names } = await withStreams(2);
    const recycled = await world.follow(names);
    world.clock.move(15_000);
    expect(new TextDecoder().decode(recycled.writes.at(-1))).toBe(":\n\n");
    world.clock.move(60_000);
    expect(recycled.ending).toBe("ended");
    const left = await world.follow(names);
    left.leave();
    const { length } = left.writes;
    await world.ask("POST", names[0] ?? "", "[7]");
    await settle();
    expect(left.writes).toHaveLength(length);
    const stopped = await world.follow(names);
    world.server.drain();
    expect(stopped.ending).toBe("ended");
  });
});

describe("rights over several streams", () => {
  const authorize: Authorize = () => ({
    name: "guest",
    grants: [{ actions: ["read", "append", "create"], streams: ["/v1/stream/mine/**"] }],
  });

  test("G180 one stream that the caller may not read refuses the whole request, whether it is there or not", async () => {
    const world = new World(authorize);
    const mine = "/v1/stream/mine/1";
    expect((await world.ask("PUT", mine)).status).toBe(201);
    for (const other of ["/v1/stream/theirs/1", "/v1/stream/theirs/none"]) {
      const query = `stream=${mine}&offset=-1&stream=${other}&offset=-1`;
      const answer = await world.ask("GET", `/_hapax/follow?${query}`);
      expect([answer.status, "live" in answer]).toEqual([403, false]);
    }
    const sink = await world.follow([mine]);
    expect(deliveries(sink)).toHaveLength(1);
  });
});
