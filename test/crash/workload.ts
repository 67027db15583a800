/** What the crash tests do to an engine: producers that retry, streams that come and go, readers. */

import type { Change } from "../../src/streams/core/change.ts";
import type { CreateCommand } from "../../src/streams/core/create.ts";
import type { Offset, StreamId, StreamName, TimeMs } from "../../src/streams/core/types.ts";
import { isHapaxError } from "../../src/base/errors.ts";
import type { Engine } from "../../src/streams/engine/engine.ts";
import { appendCommand, createCommand, producerClaim } from "../../src/testing/commands.ts";
import type { SeededRandom } from "../../src/testing/seeded-random.ts";
import type { VirtualClock } from "../../src/testing/virtual-clock.ts";

const DATA_STREAMS = ["/data/0", "/data/1", "/data/2"];
const PRODUCERS = 4;

/** What a producer has in mind. It survives every crash of the server. */
interface Producer {
  readonly id: string;
  readonly stream: StreamName;
  next: number;
  acknowledged: number;
}

export class Workload {
  readonly #random: SeededRandom;
  readonly clock: VirtualClock;
  readonly #producers: Producer[];
  /** What readers saw, by life of a stream. */
  readonly #seen = new Map<StreamId, string>();
  #generation = 0;

  constructor(random: SeededRandom, clock: VirtualClock) {
    this.#random = random;
    this.clock = clock;
    this.#producers = Array.from({ length: PRODUCERS }, (_, index) => ({
      id: `p${index}`,
      stream: (DATA_STREAMS[index % DATA_STREAMS.length] ?? "") as StreamName,
      next: 0,
      acknowledged: -1,
    }));
  }

  /** One life of the server: everything at once. Rejects or hangs when the disk does. */
  async run(engine: Engine, steps: number): Promise<void> {
    this.#generation += 1;
    for (const name of DATA_STREAMS) await engine.create(createCommand(name));
    await Promise.all([
      ...this.#producers.map((producer) => this.#produce(engine, producer, steps)),
      this.#churn(engine, 0, 2 * steps),
      this.#churn(engine, 1, 2 * steps),
      this.#administer(engine, steps),
      this.#read(engine, 3),
    ]);
  }

  /** Every producer sends again what it has no answer for; then each record is there once, in order. */
  async finish(engine: Engine): Promise<void> {
    for (const name of DATA_STREAMS) await engine.create(createCommand(name));
    for (const producer of this.#producers) {
      if (producer.next > producer.acknowledged) await this.#send(engine, producer, false);
    }
    for (const name of DATA_STREAMS) await this.#checkOnce(engine, name as StreamName);
  }

  /** What any reader saw is still there, unless its stream was deleted. */
  async checkSeen(engine: Engine): Promise<void> {
    for (const [id, text] of this.#seen) {
      if (!engine.world.byId.has(id)) continue;
      const found = await textOf(engine, id);
      if (!found.startsWith(text))
        throw new Error(`a reader saw more of stream ${id} than is there`);
    }
  }

  async #produce(engine: Engine, producer: Producer, steps: number): Promise<void> {
    for (let step = 0; step < steps; step += 1) await this.#send(engine, producer, true);
  }

  async #send(engine: Engine, producer: Producer, mayBeLarge: boolean): Promise<void> {
    const { id, next, stream } = producer;
    // A retry has the same body, so its size follows from the number.
    const padding = mayBeLarge || next > 0 ? ".".repeat(sizeOf(id, next)) : "";
    const outcome = await engine.append(
      stream,
      appendCommand(`${id}:${next}${padding};`, { producer: producerClaim(id, 0, next) }),
    );
    if (outcome.kind !== "accepted" && outcome.kind !== "duplicate") {
      throw new Error(`${id}:${next} was answered ${outcome.kind}`);
    }
    producer.acknowledged = next;
    producer.next = next + 1;
  }

  async #checkOnce(engine: Engine, name: StreamName): Promise<void> {
    const look = await engine.look(name);
    if (look.kind !== "found") throw new Error(`${name} is ${look.kind}`);
    const records = (await textOf(engine, look.state.id)).split(";").slice(0, -1);
    for (const producer of this.#producers.filter(({ stream }) => stream === name)) {
      const own = records.filter((record) => record.startsWith(`${producer.id}:`));
      const numbers = own.map((record) => Number.parseInt(record.split(":")[1] ?? "", 10));
      const expected = Array.from({ length: producer.next }, (_, index) => index);
      if (numbers.join() !== expected.join()) {
        throw new Error(
          `${name} has ${numbers.join()} of ${producer.id}, not 0 to ${producer.next - 1}`,
        );
      }
    }
  }

  /** Streams that are created, written, forked, closed and deleted. */
  async #churn(engine: Engine, actor: number, steps: number): Promise<void> {
    const random = this.#random;
    for (let step = 0; step < steps; step += 1) {
      const name = `/churn/${actor}/${random.below(3)}`;
      const chance = random.below(10);
      if (chance < 3) await engine.create(this.#creation(name, actor));
      else if (chance < 8) {
        const closes = random.below(8) === 0;
        const text = `${this.#generation}.${step}${"-".repeat(random.below(2500))};`;
        const streamSeq = String(engine.world.version).padStart(9, "0");
        await engine.append(name as StreamName, appendCommand(text, { closes, streamSeq }));
      } else await engine.delete(name as StreamName);
    }
  }

  #creation(name: string, actor: number): CreateCommand {
    const random = this.#random;
    const text = random.below(2) === 0 ? "" : `first${"=".repeat(random.below(300))};`;
    const expiry = { kind: "ttl", seconds: 36_000 } as const;
    if (random.below(3) > 0) return createCommand(name, { text, expiry });
    const sources = [...DATA_STREAMS, `/churn/${actor}/${random.below(3)}`];
    const sourceName = (sources[random.below(sources.length)] ?? "") as StreamName;
    return createCommand(name, { text, fork: { sourceName, anchor: undefined, subOffset: 0 } });
  }

  /** Subscriptions, keys, and time that goes by. */
  async #administer(engine: Engine, steps: number): Promise<void> {
    const random = this.#random;
    for (let step = 0; step < steps; step += 1) {
      this.clock.advance(random.below(60_000));
      const atMs = engine.nowMs();
      const subscription = `sub-${random.below(3)}`;
      const change = this.#administration(engine, subscription, atMs);
      await engine.submit([change]);
    }
  }

  #administration(engine: Engine, subscription: string, atMs: TimeMs): Change {
    const existing = engine.world.subscriptions.byId.get(subscription);
    const chance = this.#random.below(4);
    if (chance === 0) return { kind: "signing_key_added", atMs, key: `key at ${atMs}` };
    if (existing === undefined) {
      const generation = engine.world.subscriptions.generationFloor;
      const stream = "/data/0" as StreamName;
      const way = { kind: "webhook", url: "https://example.com/" } as const;
      const settings = { way, pattern: "/churn/**", streams: [stream], leaseMs: 1000 };
      return {
        kind: "subscription_created",
        atMs,
        subscription,
        settings: { ...settings, description: undefined },
        generation,
        links: [{ stream, isExplicit: true, isGlob: false, acked: undefined }],
      };
    }
    if (chance === 1) return { kind: "subscription_deleted", atMs, subscription };
    if (existing.phase.kind === "idle") {
      const stream = "/data/0" as StreamName;
      const generation = existing.generation + 1;
      const tails = [[stream, 0 as Offset]] as const;
      const wakeId = `wake ${generation}`;
      const leaseUntilMs = (atMs + 1000) as TimeMs;
      return {
        kind: "subscription_woken",
        atMs,
        subscription,
        wakeId,
        generation,
        tails,
        leaseUntilMs,
      };
    }
    return { kind: "subscription_released", atMs, subscription, reason: "done" };
  }

  async #read(engine: Engine, steps: number): Promise<void> {
    for (let step = 0; step < steps; step += 1) {
      const ids = [...engine.world.byId.keys()];
      const id = ids[this.#random.below(ids.length)];
      const state = id === undefined ? undefined : engine.world.byId.get(id);
      if (id === undefined || state === undefined || state.isDeleted) continue;
      if ((await engine.look(state.name)).kind !== "found") continue;
      if (engine.world.byId.get(id) !== state) continue;
      engine.touch(state);
      const text = await textOf(engine, id).catch((error: unknown) => {
        if (!isHapaxError(error, "stream_not_found")) throw error;
        return undefined; // It was deleted while it was read.
      });
      const before = this.#seen.get(id) ?? "";
      if (text === undefined || engine.world.byId.get(id) !== state) continue;
      if (!text.startsWith(before)) {
        throw new Error(`stream ${id} shows ${text.length} of ${before.length} bytes`);
      }
      this.#seen.set(id, text);
    }
  }
}

function sizeOf(id: string, sequence: number): number {
  const mixed = Math.imul(sequence + 1, 2_654_435_761) >>> (3 + (id.charCodeAt(1) % 4));
  // Now and then more than a whole small segment.
  if (mixed % 61 === 0) return 20_000;
  return mixed % 7 === 0 ? mixed % 1500 : mixed % 100;
}

/** All of a stream that is durable, also of one that its users have deleted. */
async function textOf(engine: Engine, id: StreamId): Promise<string> {
  const state = engine.world.byId.get(id);
  if (state === undefined) return "";
  const end = engine.view(state).tail;
  const parts: Uint8Array[] = [];
  for (let position = 0 as Offset; position < end;) {
    const page = await engine.read(state, position, 32_768);
    if (page.bytes === 0) break;
    parts.push(...page.appends);
    position = page.next;
  }
  return Buffer.concat(parts).toString("latin1");
}
