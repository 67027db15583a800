/** Consumers over real sockets: order, leases, hand-over, zombies. PROTOCOL.md §20. */

import { afterEach, describe, expect, test } from "vitest";
import type { LeasedBatch } from "../../src/client/processing.ts";
import { isHapaxError } from "../../src/base/errors.ts";
import { Events, openStage, pausable, type ProcessingStage } from "./stage.ts";

const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

async function stage(...args: Parameters<typeof openStage>): Promise<ProcessingStage> {
  const opened = await openStage(...args);
  closing.push(() => opened.close());
  return opened;
}

const paths = (count: number): string[] =>
  Array.from({ length: count }, (_, index) => `/v1/stream/in/${String(index)}`);

async function createAll({ direct }: ProcessingStage, names: readonly string[]): Promise<void> {
  for (const name of names) await direct.stream(name).create();
}

type Given = LeasedBatch<number>;

function valueOf<T>(result: IteratorResult<T, undefined>): T {
  if (result.done === true) throw new Error("the consumer is done");
  return result.value;
}

/** Whether the promise is still pending after all queued work has run. */
async function isPending(promise: Promise<unknown>): Promise<boolean> {
  let isSettled = false;
  const settle = (): void => {
    isSettled = true;
  };
  promise.then(settle, settle);
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  return !isSettled;
}

describe("batches", () => {
  test("the next batch of a stream comes only after the one before is committed or done", async () => {
    const opened = await stage();
    const [name = ""] = paths(1);
    await createAll(opened, [name]);
    const source = opened.direct.stream(name);
    await source.append(1);
    const consumer = opened.connect().consumer<number>({ group: "g", streams: [name] });
    closing.push(() => consumer.close());
    const first = valueOf(await consumer.next());
    expect(first.records).toEqual([1]);
    await source.append(2);
    const second = consumer.next();
    expect(await isPending(second)).toBe(true);
    await first.commit();
    const given = valueOf(await second);
    expect([given.records, given.offset, given.stream]).toEqual([[2], first.nextOffset, name]);
    await source.append(3);
    const third = consumer.next();
    given.done();
    expect(given.isSettled).toBe(true);
    const last = valueOf(await third);
    expect(last.records).toEqual([3]);
    // Done is not committed; a later commit covers both.
    const offset = async (): Promise<string | undefined> =>
      (await opened.direct.group("g").describe()).cursors[0]?.offset;
    expect(await offset()).toBe(first.nextOffset);
    await given.commit();
    expect(await offset()).toBe(given.nextOffset);
    await last.commit();
    expect(await offset()).toBe(last.nextOffset);
  });

  test("a transaction that commits a batch stores output and offset, and lets the next batch come", async () => {
    const opened = await stage();
    const [name = "", out = "/v1/stream/out"] = paths(1);
    await createAll(opened, [name, out]);
    const source = opened.direct.stream(name);
    await source.append(1);
    const hapax = opened.connect();
    const consumer = hapax.consumer<number>({ group: "g", streams: [name] });
    closing.push(() => consumer.close());
    const batch = valueOf(await consumer.next());
    await source.append(2);
    const next = consumer.next();
    await hapax.transaction((tx) => {
      tx.expectLease(batch.lease);
      for (const id of batch.records) tx.append(out, id);
      tx.commit(batch);
    });
    expect(batch.isSettled).toBe(true);
    const { cursors } = await opened.direct.group("g").describe();
    expect(cursors[0]?.offset).toBe(batch.nextOffset);
    expect(valueOf(await next).records).toEqual([2]);
    // Committed already: nothing is sent again.
    const { requests } = opened.proxy;
    await batch.commit();
    expect(opened.proxy.requests).toBe(requests);
    expect(await opened.direct.stream(out).read().values()).toEqual([1]);
  });

  test("what was not committed comes again, what was committed does not", async () => {
    const opened = await stage();
    const [name = ""] = paths(1);
    await createAll(opened, [name]);
    const source = opened.direct.stream(name);
    await source.append(1);
    const hapax = opened.connect();
    const take = async (commits: boolean): Promise<readonly number[]> => {
      await using consumer = hapax.consumer<number>({ group: "g", streams: [name] });
      const batch = valueOf(await consumer.next());
      if (commits) await batch.commit();
      return batch.records;
    };
    expect(await take(false)).toEqual([1]);
    expect(await take(true)).toEqual([1]);
    await source.append(2);
    expect(await take(true)).toEqual([2]);
  });

  test("what gathered while a batch was worked on is one batch, and streams go side by side", async () => {
    const opened = await stage();
    const [one = "", two = ""] = paths(2);
    await createAll(opened, [one, two]);
    for (const name of [one, two]) await opened.direct.stream(name).append(0);
    const consumer = opened.connect().consumer<number>({ group: "g", streams: [one, two] });
    closing.push(() => consumer.close());
    const [a, b] = [valueOf(await consumer.next()), valueOf(await consumer.next())];
    expect([a.stream, b.stream].toSorted()).toEqual([one, two]);
    for (let id = 1; id <= 20; id += 1) await opened.direct.stream(a.stream).append(id);
    await a.commit();
    const next = valueOf(await consumer.next());
    expect([next.stream, next.records.length]).toEqual([a.stream, 20]);
  });

  test("a closed stream is finished with its last commit, also if the answer to it is lost", async () => {
    let drops = 0;
    const opened = await stage({
      fateOf: ({ path }) => {
        if (path !== "/_hapax/transactions" || drops > 0) return {};
        drops += 1;
        return { harm: "dropAnswers" };
      },
    });
    const [one = "", two = ""] = paths(2);
    await createAll(opened, [one, two]);
    const events = new Events();
    const consumer = opened.connect().consumer<number>({
      group: "g",
      streams: [one, two],
      onEvent: events.take,
    });
    closing.push(() => consumer.close());
    await opened.direct.stream(one).append(1);
    await opened.direct.stream(one).close(2);
    const batch = valueOf(await consumer.next());
    expect([batch.records, batch.closed]).toEqual([[1, 2], true]);
    await batch.commit();
    // One that is closed without another record is finished without a batch.
    await opened.direct.stream(two).append(3);
    const other = valueOf(await consumer.next());
    await other.commit();
    await opened.direct.stream(two).close();
    await events.until("finished", 2);
    const { cursors } = await opened.direct.group("g").describe();
    expect(cursors.map(({ finished }) => finished)).toEqual([true, true]);
    expect(drops).toBe(1);
    expect(events.count("lost")).toBe(0);
    expect(consumer.leaseCount).toBe(0);
  });

  test("more streams than connections are all read, and no more than so many are waited for", async () => {
    const opened = await stage();
    const names = paths(6);
    await createAll(opened, names);
    let live = 0;
    let most = 0;
    const { transport } = pausable();
    const hapax = opened.connect({
      transport: async (request) => {
        const isLive = request.url.includes("live=");
        if (isLive) live += 1;
        most = Math.max(most, live);
        try {
          return await transport(request);
        } finally {
          if (isLive) live -= 1;
        }
      },
    });
    const consumer = hapax.consumer<number>({
      group: "g",
      streams: names,
      liveMax: 2,
      pollMs: 10,
    });
    closing.push(() => consumer.close());
    const rounds = 3;
    for (let round = 0; round < rounds; round += 1) {
      for (const name of names) await opened.direct.stream(name).append(round);
      const seen = new Map<string, number[]>();
      while ([...seen.values()].flat().length < names.length) {
        const batch = valueOf(await consumer.next());
        seen.set(batch.stream, [...(seen.get(batch.stream) ?? []), ...batch.records]);
        await batch.commit();
      }
      expect([...seen.keys()].toSorted()).toEqual(names);
      expect([...seen.values()].flat().every((value) => value === round)).toBe(true);
    }
    expect(most).toBe(2);
  });
});

describe("commits", () => {
  test("many commits are few requests, and one that is refused takes no other with it", async () => {
    const opened = await stage();
    const names = paths(5);
    await createAll(opened, names);
    for (const name of names) await opened.direct.stream(name).append(1);
    const { transport, sent } = pausable();
    const consumer = opened.connect({ transport }).consumer<number>({ group: "g", streams: names });
    closing.push(() => consumer.close());
    const batches: Given[] = [];
    for (const _ of names) batches.push(valueOf(await consumer.next()));
    // An administrator takes one of them away.
    const [taken] = batches;
    await opened.direct.group("g").reset({ stream: taken?.stream ?? "", to: "beginning" });
    const endings = await Promise.allSettled(batches.map((batch) => batch.commit()));
    expect(endings.map(({ status }) => status)).toEqual([
      "rejected",
      ...names.slice(1).map(() => "fulfilled"),
    ]);
    expect(taken?.signal.aborted).toBe(true);
    const { cursors } = await opened.direct.group("g").describe();
    expect(cursors.filter(({ lag }) => lag === 0)).toHaveLength(4);
    // One for all, and then each alone.
    expect(sent.filter((line) => line.endsWith("/commit"))).toHaveLength(6);
  });

  test("a commit waits out an outage, and its lost answer is asked for again", async () => {
    let lost = 0;
    const opened = await stage({
      fateOf: ({ path }) => {
        if (!path.endsWith("/commit") || lost >= 3) return {};
        lost += 1;
        return { harm: "dropAnswers" };
      },
    });
    const [name = ""] = paths(1);
    await createAll(opened, [name]);
    await opened.direct.stream(name).append(1);
    const events = new Events();
    const hapax = opened.connect({ retry: { totalMs: 0, pauseMs: 1, pauseMsMax: 5 } });
    const consumer = hapax.consumer({ group: "g", streams: [name], onEvent: events.take });
    closing.push(() => consumer.close());
    const batch = valueOf(await consumer.next());
    const impatient = batch.commit({ signal: AbortSignal.abort(new Error("now or never")) });
    await expect(impatient).rejects.toThrow("now or never");
    await batch.commit();
    expect(lost).toBe(3);
    expect(events.count("retrying")).toBe(3);
    expect((await opened.direct.group("g").describe()).cursors[0]?.lag).toBe(0);
  });
});

describe("leases", () => {
  test("a member is heard of while its worker takes longer than the lease, and loses nothing", async () => {
    const opened = await stage();
    const [name = ""] = paths(1);
    await createAll(opened, [name]);
    await opened.direct.stream(name).append(1);
    const events = new Events();
    const consumer = opened.connect().consumer<number>({
      group: "g",
      streams: [name],
      leaseMs: 1000,
      onEvent: events.take,
    });
    closing.push(() => consumer.close());
    const batch = valueOf(await consumer.next());
    const rival = async (action: string, body: unknown): Promise<Map<string, unknown>> => {
      const url = `${opened.server.url}/_hapax/groups/g/${action}`;
      const answer = await fetch(url, { method: "POST", body: JSON.stringify(body) });
      return new Map(Object.entries((await answer.json()) as object));
    };
    const member = (await rival("join", {})).get("member");
    // The time is the matter here: for more than two leases another one asks for the stream.
    const endMs = performance.now() + 2500;
    while (performance.now() < endMs) {
      expect((await rival("claim", { member })).get("leases")).toEqual([]);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    expect(batch.signal.aborted).toBe(false);
    await batch.commit();
    expect(events.count("lost") + events.count("member_lost")).toBe(0);
  });

  test("a stream that is asked back is handed over after its batch, and nothing is done twice", async () => {
    const opened = await stage();
    const names = paths(4);
    await createAll(opened, names);
    for (const name of names) await opened.direct.stream(name).append(0);
    const group = { group: "g", streams: names, heartbeatMs: 50 };
    const [events, otherEvents] = [new Events(), new Events()];
    const first = opened.connect().consumer<number>({ ...group, onEvent: events.take });
    closing.push(() => first.close());
    const held: Given[] = [];
    for (const _ of names) held.push(valueOf(await first.next()));
    const second = opened.connect().consumer<number>({ ...group, onEvent: otherEvents.take });
    closing.push(() => second.close());
    const coming = second.next();
    await events.until("asked", 2);
    // Asked back, and still at work on it: nothing moves before that is committed.
    expect(await isPending(coming)).toBe(true);
    expect(events.count("handed_over")).toBe(0);
    for (const batch of held) await batch.commit();
    await events.until("handed_over", 2);
    await otherEvents.until("leased", 2);
    for (const name of names) await opened.direct.stream(name).append(1);
    const next = valueOf(await coming);
    expect(next.records).toEqual([1]);
    expect(held.filter(({ signal }) => signal.aborted)).toHaveLength(2);
    expect([first.leaseCount, second.leaseCount]).toEqual([2, 2]);
  });

  test("a worker that holds a lease too long gets an abort before it loses it, and the other worker goes on", async () => {
    const opened = await stage();
    const names = paths(2);
    await createAll(opened, names);
    for (const name of names) await opened.direct.stream(name).append(0);
    const group = { group: "g", streams: names, leaseMs: 1000 };
    const events = new Events();
    const first = opened.connect().consumer<number>({ ...group, onEvent: events.take });
    closing.push(() => first.close());
    const held = [valueOf(await first.next()), valueOf(await first.next())];
    const second = opened.connect().consumer<number>(group);
    closing.push(() => second.close());
    const taken = valueOf(await second.next());
    const lost = held.find(({ stream }) => stream === taken.stream);
    expect(lost?.signal.aborted).toBe(true);
    expect(isHapaxError(lost?.signal.reason, "lease_lost")).toBe(true);
    await expect(lost?.commit()).rejects.toMatchObject({ code: "lease_lost" });
    // Given back by its holder, not taken from it.
    expect([events.count("handed_over"), events.count("lost")]).toEqual([1, 0]);
    await taken.commit();
    const kept = held.find(({ stream }) => stream !== taken.stream);
    await kept?.commit();
  });

  test("a member that was paused beyond its lease stores nothing, and joins again", async () => {
    const opened = await stage();
    const [name = "", out = "/v1/stream/out"] = paths(1);
    await createAll(opened, [name, out]);
    await opened.direct.stream(name).append(7);
    const { transport, pause, resume } = pausable();
    const zombie = opened.connect({ transport, timeoutMs: 30_000 });
    const group = { group: "g", streams: [name], leaseMs: 1000 };
    const events = new Events();
    const first = zombie.consumer<number>({ ...group, onEvent: events.take });
    closing.push(() => first.close());
    const old = valueOf(await first.next());
    pause();
    const hapax = opened.connect();
    const second = hapax.consumer<number>(group);
    closing.push(() => second.close());
    // After the lease time the other one has it, with the same records.
    const batch = valueOf(await second.next());
    expect(batch.records).toEqual([7]);
    await hapax.transaction((tx) => {
      tx.append(out, "by the new holder");
      tx.commit(batch);
    });
    const late = zombie.transaction((tx) => {
      tx.append(out, "by the zombie");
      tx.commit(old);
    });
    resume();
    const error: unknown = await late.catch((reason: unknown) => reason);
    expect(error).toMatchObject({ outcome: "not_stored" });
    const codes = ["lease_lost", "member_lost"];
    expect(isHapaxError(error) && codes.includes(error.code)).toBe(true);
    expect(old.signal.aborted).toBe(true);
    await events.until("joined", 2);
    await expect(old.commit()).rejects.toMatchObject({ code: "lease_lost" });
    expect(await opened.direct.stream(out).read().values()).toEqual(["by the new holder"]);
    // It is a member again, and gets the stream when the other one leaves.
    await second.close();
    await opened.direct.stream(name).append(8);
    const again = valueOf(await first.next());
    expect([again.records, again.lease.token > old.lease.token]).toEqual([[8], true]);
  });

  test("a stream that comes later is leased, and one that is deleted is let go", async () => {
    const opened = await stage();
    const [one = "", two = ""] = paths(2);
    await createAll(opened, [one]);
    const events = new Events();
    const consumer = opened.connect().consumer<number>({
      group: "g",
      pattern: "/v1/stream/in/*",
      heartbeatMs: 50,
      onEvent: events.take,
    });
    closing.push(() => consumer.close());
    const coming = consumer.next();
    await events.until("leased", 1);
    await opened.direct.stream(two).create();
    await opened.direct.stream(two).append(2);
    const batch = valueOf(await coming);
    expect([batch.stream, batch.records]).toEqual([two, [2]]);
    await batch.commit();
    await opened.direct.stream(two).delete();
    await events.until("lost", 1);
    expect(consumer.leaseCount).toBe(1);
    expect(batch.signal.aborted).toBe(true);
  });

  test("a lease that was given back is not taken up again by an older answer", async () => {
    let isHeld = false;
    const opened = await stage({
      // The release is on its way for long; claims that are answered meanwhile still have the lease.
      fateOf: ({ path }) => (path.endsWith("/release") && isHeld ? { delayMs: 1500 } : {}),
    });
    const names = paths(2);
    await createAll(opened, names);
    for (const name of names) await opened.direct.stream(name).append(0);
    const group = { group: "g", streams: names, heartbeatMs: 30 };
    const events = new Events();
    const first = opened.connect({ timeoutMs: 30_000 }).consumer<number>({
      ...group,
      onEvent: events.take,
    });
    closing.push(() => first.close());
    const held = [valueOf(await first.next()), valueOf(await first.next())];
    isHeld = true;
    const second = opened.connect().consumer<number>(group);
    closing.push(() => second.close());
    const coming = second.next();
    await events.until("asked", 1);
    for (const batch of held) await batch.commit();
    await events.until("handed_over", 1);
    // Many claims later it still has what it kept, and no more.
    const claims = opened.proxy.requests + 20;
    while (opened.proxy.requests < claims) await new Promise((resolve) => setImmediate(resolve));
    expect([first.leaseCount, events.count("leased")]).toEqual([1, 2]);
    await opened.direct.stream(names[0] ?? "").append(1);
    await opened.direct.stream(names[1] ?? "").append(1);
    expect(valueOf(await coming).records).toEqual([1]);
  });
});

describe("run", () => {
  test("it commits what its handlers have not, and ends in order when it is stopped", async () => {
    const opened = await stage();
    const names = paths(3);
    await createAll(opened, names);
    for (const name of names) await opened.direct.stream(name).append(1);
    const stop = new AbortController();
    const seen: string[] = [];
    let most = 0;
    let running = 0;
    let bothAreHere = (): void => undefined;
    const both = new Promise<void>((resolve) => {
      bothAreHere = resolve;
    });
    const consumer = opened.connect().consumer<number>({ group: "g", streams: names });
    await consumer.run(
      async (batch) => {
        running += 1;
        most = Math.max(most, running);
        if (running === 2) bothAreHere();
        await both;
        seen.push(batch.stream);
        if (seen.length === names.length) stop.abort();
        running -= 1;
      },
      { concurrency: 2, signal: stop.signal },
    );
    expect(seen.toSorted()).toEqual(names);
    expect(most).toBe(2);
    const { cursors, members } = await opened.direct.group("g").describe();
    expect(cursors.map(({ lag }) => lag)).toEqual([0, 0, 0]);
    expect(members).toEqual([]);
    expect((await consumer.next()).done).toBe(true);
  });

  test("the error of a handler ends it, uncommitted, and the group is left at once", async () => {
    const opened = await stage();
    const [name = ""] = paths(1);
    await createAll(opened, [name]);
    await opened.direct.stream(name).append(1);
    const consumer = opened.connect().consumer({ group: "g", streams: [name] });
    const run = consumer.run(() => Promise.reject(new Error("cannot")));
    await expect(run).rejects.toThrow("cannot");
    const { cursors, members } = await opened.direct.group("g").describe();
    expect([cursors[0]?.lag, members.length]).toEqual([1 + 1, 0]);
  });

  test("a signal ends a consumer at once, and a permanent error rejects next()", async () => {
    const opened = await stage();
    const stop = new AbortController();
    const hapax = opened.connect();
    const consumer = hapax.consumer({ group: "g", pattern: "/v1/stream/*", signal: stop.signal });
    const waiting = consumer.next();
    stop.abort(new Error("enough"));
    await expect(waiting).rejects.toThrow("enough");
    await consumer.close();
    const none = hapax.consumer({ group: "not created" });
    await expect(none.next()).rejects.toMatchObject({ code: "group_not_found" });
    await none.close();
    await hapax.group("g").delete();
    await hapax.group("g").create({ pattern: "/v1/stream/*" });
    const other = hapax.consumer({ group: "g", pattern: "/v1/*" });
    await expect(other.next()).rejects.toMatchObject({ code: "group_exists" });
    await other.close();
    expect(() => hapax.consumer({ group: "g", liveMax: 0, pollMs: 0 })).toThrow(
      /liveMax=0 .*; pollMs=0/,
    );
  });
});
