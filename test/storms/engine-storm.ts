/**
 * A storm of retries at the engine, in an order that a seed chooses: requests overtake each other, answers are
 * lost, unanswered requests are sent again while older copies are still on their way, commits take their
 * time, and, if wanted, the power goes. PROTOCOL.md §14, §15, §16, §17
 */

import type { StreamName } from "../../src/streams/core/types.ts";
import type { Engine } from "../../src/streams/engine/engine.ts";
import { WholeEngine } from "../../src/streams/engine/whole-engine.ts";
import type { AppendOutcome } from "../../src/streams/engine/outcomes.ts";
import { openOnDisk } from "../../src/streams/stores/file/file-store.ts";
import { openMemoryStore } from "../../src/streams/stores/memory.ts";
import { createCommand, joinedText } from "../../src/testing/commands.ts";
import { type GatedStore, openGatedStore } from "../kits/gated-store.ts";
import { createSeededRandom, type SeededRandom } from "../../src/testing/seeded-random.ts";
import { createSimulatedDisk, type SimulatedDisk } from "../kits/simulated-disk.ts";
import { createVirtualClock, type VirtualClock } from "../../src/testing/virtual-clock.ts";
import { turn } from "../kits/watch.ts";
import { type Attempt, Contender, type Identity, PipelinedSender, type Sender } from "./senders.ts";

export type StormKind = Identity | "contention";

export interface StormReport {
  readonly attempts: number;
  readonly lost: number;
  /** Attempts that found their append stored. */
  readonly repeated: number;
  readonly held: number;
  readonly conflicts: number;
  readonly crashes: number;
  readonly restarts: number;
  readonly problems: readonly string[];
}

const NAME = "/v1/stream/storm" as StreamName;
const DROPPED = 30; // Percent.
const ON_THE_WAY_MAX = 60;

/** Where the engine runs, and what becomes of it. */
interface Place {
  readonly engine: Engine;
  /** Commits that wait to be let through. */
  readonly gate: GatedStore | undefined;
  readonly disk: SimulatedDisk | undefined;
}

interface Answer {
  readonly attempt: Attempt;
  readonly outcome: AppendOutcome;
}

export async function runStorm(
  seed: number,
  kind: StormKind,
  hasCrashes = false,
): Promise<StormReport> {
  const storm = new Storm(createSeededRandom(seed * 7919 + 11), kind, seed, hasCrashes);
  return storm.run();
}

class Storm {
  readonly #random: SeededRandom;
  readonly #clock: VirtualClock = createVirtualClock(1_700_000_000_000);
  readonly #senders: readonly Sender[];
  readonly #requests: Attempt[] = [];
  readonly #answers: Answer[] = [];
  /** Ends the waiting of an attempt whose client goes away. */
  readonly #aborts: (() => void)[] = [];
  readonly #hasCrashes: boolean;
  readonly #seed: number;
  /** The disk that lost its power. */
  #stopped: SimulatedDisk | undefined;
  readonly #counts = { attempts: 0, lost: 0, repeated: 0, held: 0, crashes: 0, restarts: 0 };

  constructor(random: SeededRandom, kind: StormKind, seed: number, hasCrashes: boolean) {
    this.#random = random;
    this.#seed = seed;
    this.#hasCrashes = hasCrashes;
    // Who names tails writes alone, or fights for them.
    const ids = kind === "if-match session" ? ["a"] : ["a", "b"];
    this.#senders =
      kind === "contention"
        ? ids.map((id) => new Contender(id, 10))
        : ids.map((id) => new PipelinedSender(id, kind, 20, random));
  }

  async run(): Promise<StormReport> {
    let place = await this.#open(this.#hasCrashes ? createSimulatedDisk(this.#seed) : undefined);
    await this.#settle(place, place.engine.create(createCommand(NAME)));
    for (const sender of this.#senders)
      for (const number of sender.open()) this.#send(sender, number);
    let crashesLeft = this.#hasCrashes ? 1 + this.#random.below(4) : 0;
    this.#plan(place, crashesLeft);
    while (this.#senders.some((sender) => !sender.isDone && sender.problems.length === 0)) {
      await this.#step(place);
      if (place.disk === undefined || this.#stopped !== place.disk) continue;
      crashesLeft -= 1;
      place = await this.#crash(place.disk);
      this.#plan(place, crashesLeft);
    }
    if (this.#problems().length === 0) await this.#calm(place);
    const conflicts = this.#senders.reduce(
      (sum, sender) => sum + (sender instanceof Contender ? sender.conflicts : 0),
      0,
    );
    return { ...this.#counts, conflicts, problems: this.#problems() };
  }

  async #open(disk: SimulatedDisk | undefined): Promise<Place> {
    const clock = this.#clock;
    const parts = { clock, jsonRecordsEnd: () => undefined };
    if (disk === undefined) {
      const gate = openGatedStore(openMemoryStore());
      return { engine: new WholeEngine({ store: gate, ...parts }), gate, disk };
    }
    const sizes = { segmentBytes: 16_384, snapshotBytes: 1024 + this.#random.below(8192) };
    const store = await openOnDisk(disk, { ...sizes, clock, random: this.#random }, async () => {});
    return { engine: new WholeEngine({ store, ...parts }), gate: undefined, disk };
  }

  #plan({ disk }: Place, crashesLeft: number): void {
    if (disk === undefined || crashesLeft === 0) return;
    disk.stopAt(disk.log.length + 1 + this.#random.below(12));
    void disk.stopped.then(() => {
      this.#stopped = disk;
    });
  }

  /** After a crash: what was being answered is lost, and so is what was on its way to a sender that restarts. */
  async #crash(disk: SimulatedDisk): Promise<Place> {
    this.#counts.crashes += 1;
    this.#answers.length = 0;
    this.#aborts.length = 0;
    const place = await this.#open(this.#random.below(2) === 0 ? disk.kill() : disk.crash());
    for (const sender of this.#senders) {
      if (this.#random.below(2) === 0) continue;
      // The connections of a process end with it, and what it had sent is not sent again by anybody.
      const others = this.#requests.filter((attempt) => attempt.sender !== sender);
      this.#requests.splice(0, this.#requests.length, ...others);
      const id = sender.attempt(0).command.producer?.id;
      if (id === undefined) continue;
      sender.restart(await place.engine.producer(NAME, id));
      this.#counts.restarts += 1;
    }
    return place;
  }

  async #step(place: Place): Promise<void> {
    const random = this.#random;
    const choice = random.below(100);
    if (choice < 25) this.#answer();
    else if (choice < 65) {
      this.#deliver(place.engine);
      // Now and then several arrive before anything else can happen.
      if (random.below(2) > 0) await turn();
    } else if (choice < 80) await this.#release(place);
    else if (choice < 95) this.#retry();
    else if (choice < 98) this.#clock.advance(random.below(400));
    else this.#take(this.#aborts)?.();
  }

  /** Some request that is on its way arrives. */
  #deliver(engine: Engine): void {
    const attempt = this.#take(this.#requests);
    if (attempt === undefined) return;
    this.#counts.attempts += 1;
    const { sender, command } = attempt;
    const { waitMs } = sender;
    let isAborted = false;
    const onAbort = (run: () => void): void => {
      this.#counts.held += 1;
      this.#aborts.push(() => {
        const held = engine.heldAppends;
        run();
        // It may have been decided before: then the client gives up an answer, not an append.
        isAborted = engine.heldAppends < held;
      });
    };
    const patient = waitMs > 0 ? { waitMs, onAbort, wasHeld: false } : undefined;
    engine.append(NAME, command, patient).then(
      (outcome) => {
        sender.judge(attempt, outcome);
        if (outcome.kind === "duplicate" || outcome.kind === "replayed") this.#counts.repeated += 1;
        if (!isAborted) this.#answers.push({ attempt, outcome });
        else if (outcome.kind === "accepted") sender.problems.push("what was given up was stored");
      },
      (error: unknown) => {
        if (!this.#hasCrashes) sender.problems.push(String(error));
      },
    );
  }

  #answer(): void {
    const answer = this.#take(this.#answers);
    if (answer === undefined) return;
    if (this.#random.below(100) < DROPPED) this.#counts.lost += 1;
    else answer.attempt.sender.hear(answer.attempt, answer.outcome);
  }

  async #release({ gate }: Place): Promise<void> {
    if (gate === undefined || gate.waiting.length > 0) {
      await gate?.release();
      await turn();
    }
  }

  /** Sends an unacknowledged append again, also while older copies are on their way. */
  #retry(): void {
    if (this.#requests.length >= ON_THE_WAY_MAX) return;
    const sender = this.#senders[this.#random.below(this.#senders.length)];
    const open = sender?.open() ?? [];
    const isOldest = this.#random.below(2) === 0;
    const number = open[isOldest ? 0 : this.#random.below(open.length)];
    if (sender !== undefined && number !== undefined) this.#send(sender, number);
  }

  #send(sender: Sender, number: number): void {
    this.#requests.push(sender.attempt(number));
  }

  #take<T>(from: T[]): T | undefined {
    const at = this.#random.below(from.length);
    return from.splice(at, 1)[0];
  }

  /** All is acknowledged: older copies arrive, everything is sent once more, and the stream is compared. */
  async #calm(place: Place): Promise<void> {
    place.disk?.stopAt(Infinity);
    place.gate?.open();
    while (this.#requests.length > 0) {
      this.#deliver(place.engine);
      this.#clock.advance(100);
      await turn();
    }
    this.#clock.advance(2000);
    await turn();
    const look = await place.engine.look(NAME);
    if (look.kind !== "found") {
      this.#senders[0]?.problems.push(`the stream is ${look.kind}`);
      return;
    }
    const page = await place.engine.read(look.state, 0 as typeof look.tail, 1_000_000);
    const text = joinedText(page.appends);
    for (const sender of this.#senders) sender.check(text);
    await place.engine.close();
  }

  /** Waits while commits go through. */
  async #settle(place: Place, work: Promise<unknown>): Promise<void> {
    await turn();
    await this.#release(place);
    await work;
  }

  #problems(): readonly string[] {
    return this.#senders.flatMap(({ problems }) => problems);
  }
}
