/** What the client does with conditions, idempotency keys and producers. */

import { expect } from "vitest";
import { type Behaviour, count, failureOf, until } from "./behaviours-kit.ts";

const conditional: readonly Behaviour[] = [
  {
    name: "an append under If-Match is stored only at that tail",
    needs: "If-Match",
    async run({ connect, stored }) {
      const [one, other] = [connect(), connect()];
      const { offset } = await one.create();
      await one.append("first", { ifMatch: offset });
      const late = await failureOf(other.append("second", { ifMatch: offset }));
      expect(late).toMatchObject({ code: "tail_moved", unconfirmed: [{ outcome: "not_stored" }] });
      expect(await stored()).toEqual(["first"]);
    },
  },
  {
    name: "an append under If-Match whose answer is lost is not taken for a conflict with itself",
    needs: "If-Match",
    async run({ connect, connectLosing, stored }) {
      const { offset } = await connect().create();
      const { stream, proxy } = await connectLosing({ method: "POST", lost: "answer" });
      expect(await stream.append(1, { ifMatch: offset })).toMatchObject({ isDuplicate: true });
      expect(proxy.droppedAnswers).toBe(1);
      expect(await stored()).toEqual([1]);
    },
  },
  {
    name: "updates of three handles at once are decided one after the other",
    needs: "If-Match",
    async run({ connect, stored }) {
      await connect().create();
      const increment = async (): Promise<void> => {
        const stream = connect();
        await stream.update(async () => (await stream.read<number>().values()).length);
      };
      await Promise.all([1, 2, 3].map(increment));
      expect(await stored()).toEqual([0, 1, 2]);
    },
  },
  {
    name: "an append under If-Match is not sent to a server that would ignore it",
    lacks: "If-Match",
    async run({ connect, stored }) {
      const { offset } = await connect().create();
      await connect().append("moved");
      const refused = connect().append("x", { ifMatch: offset });
      await expect(refused).rejects.toMatchObject({ code: "unsupported" });
      expect(await stored()).toEqual(["moved"]);
    },
  },
];

const keyed: readonly Behaviour[] = [
  {
    name: "an append with a key is stored once, also if two clients send it",
    needs: "idempotency keys",
    async run({ connect, stored }) {
      await connect().create();
      const first = await connect().append({ id: 1 }, { key: "payment 1" });
      const second = await connect().append({ id: 1 }, { key: "payment 1" });
      expect([first.isDuplicate, second.isDuplicate]).toEqual([false, true]);
      expect(second.offset).toBe(first.offset);
      expect(await stored()).toEqual([{ id: 1 }]);
    },
  },
  {
    name: "an append with a key whose answer is lost is stored once",
    needs: "idempotency keys",
    async run({ connect, connectLosing, stored }) {
      await connect().create();
      const { stream, proxy } = await connectLosing({ method: "POST", lost: "answer" });
      expect(await stream.append(1, { key: "k" })).toMatchObject({ isDuplicate: true });
      expect(proxy.droppedAnswers).toBe(1);
      expect(await stored()).toEqual([1]);
    },
  },
  {
    name: "other data under the same key is refused",
    needs: "idempotency keys",
    async run({ connect, stored }) {
      await connect().create();
      await connect().append("mine", { key: "k" });
      const other = await failureOf(connect().append("yours", { key: "k" }));
      expect(other).toMatchObject({ code: "key_reused", unconfirmed: [{ outcome: "not_stored" }] });
      expect(await stored()).toEqual(["mine"]);
    },
  },
  {
    name: "an append with a key is not sent to a server that would ignore it",
    lacks: "idempotency keys",
    async run({ connect, stored }) {
      await connect().create();
      const refused = connect().append(1, { key: "k" });
      await expect(refused).rejects.toMatchObject({ code: "unsupported" });
      expect(await stored()).toEqual([]);
    },
  },
];

const producing: readonly Behaviour[] = [
  {
    name: "a flush resolves when everything that was given is stored, in order",
    async run({ connect, stored }) {
      const stream = connect();
      await stream.create();
      let acknowledged = 0;
      const producer = stream.producer({
        batchRecordsMax: 20,
        onBatchAck: ({ records }) => (acknowledged += records),
      });
      for (const id of count(300)) producer.append(id);
      await producer.flush();
      expect(await stored()).toEqual(count(300));
      expect([acknowledged, producer.pendingCount, producer.epoch]).toEqual([300, 0, 0]);
      await producer.close();
      expect(() => {
        producer.append(300);
      }).toThrow(expect.objectContaining({ code: "producer_closed" }));
    },
  },
  {
    name: "a producer behind a network that loses a third stores each record once, in order",
    async run({ connect, connectBehind, stored }) {
      await connect().create();
      const faults = { seed: 5, dropAnswers: 0.2, dropRequests: 0.15, delayRequests: 0.3 };
      const { stream, proxy } = await connectBehind({ ...faults, delayMsMax: 3 });
      const producer = stream.producer({ batchRecordsMax: 5, inFlightMax: 4 });
      for (const id of count(300)) producer.append(id);
      await producer.flush();
      expect(await stored()).toEqual(count(300));
      expect(proxy.droppedAnswers).toBeGreaterThan(5);
      expect(proxy.droppedRequests).toBeGreaterThan(5);
    },
  },
  {
    name: "several batches are on their way only where the server waits for what was overtaken",
    async run({ connect, has, stored }) {
      const stream = connect();
      await stream.create();
      const producer = stream.producer({ batchRecordsMax: 2, inFlightMax: 4 });
      // Behind the largest batch so far nothing is sent: these are all of one size.
      const records = count(40).map((id) => id + 10);
      await Promise.all(records.slice(0, 2).map((id) => producer.send(id)));
      let inFlightMax = 0;
      const sent = records.slice(2).map(async (id) => {
        await producer.send(id);
        inFlightMax = Math.max(inFlightMax, producer.inFlightCount);
      });
      await until(() => producer.inFlightCount > 0);
      inFlightMax = Math.max(inFlightMax, producer.inFlightCount);
      await Promise.all(sent);
      expect(inFlightMax).toBe(has.has("patience") ? 4 : 1);
      expect(await stored()).toEqual(records);
    },
  },
  {
    name: "a producer fences the one of the same id before it, which hands back what it has",
    async run({ connect, stored }) {
      const stream = connect();
      await stream.create();
      const old = stream.producer({ id: "writer", epoch: 0 });
      await old.send("old");
      const heir = connect().producer({ id: "writer", epoch: () => Promise.resolve(1) });
      await heir.send("new");
      expect(heir.epoch).toBe(1);
      const error = await failureOf(old.send("too late"));
      const unconfirmed = [{ data: "too late", outcome: "not_stored", isCause: true }];
      expect(error).toMatchObject({ code: "producer_fenced", unconfirmed });
      expect(await stored()).toEqual(["old", "new"]);
    },
  },
  {
    name: "a producer with an id and no epoch is refused where there are no sessions",
    lacks: "sessions",
    async run({ connect, stored }) {
      await connect().create();
      const error = await failureOf(connect().producer({ id: "writer" }).send(1));
      expect(error).toMatchObject({ code: "unsupported" });
      expect(await stored()).toEqual([]);
    },
  },
  {
    name: "an epoch that an earlier life has used does not make its appends repetitions in silence",
    lacks: "sessions",
    async run({ connect, stored }) {
      await connect().create();
      await connect().producer({ id: "writer", epoch: 3 }).send("first life");
      const error = await failureOf(connect().producer({ id: "writer", epoch: 3 }).send("second"));
      expect(error).toMatchObject({ code: "producer_fenced" });
      expect(await stored()).toEqual(["first life"]);
    },
  },
  {
    name: "a producer ends with its stream, and hands back what was not stored",
    async run({ connect, stored }) {
      const stream = connect();
      await stream.create();
      const producer = stream.producer();
      await producer.send("first");
      await connect().close();
      producer.append("second");
      const error = await failureOf(producer.flush());
      const unconfirmed = [{ data: "second", outcome: "not_stored", isCause: true }];
      expect(error).toMatchObject({ code: "stream_closed", unconfirmed });
      expect(await stored()).toEqual(["first"]);
    },
  },
  {
    name: "a source that is replayed goes on where the producer before it was",
    needs: "reading back of producers",
    async run({ connect, stored }) {
      const stream = connect();
      await stream.create();
      expect(await stream.resume("writer")).toBeUndefined();
      const producer = stream.producer({ id: "writer", batchRecordsMax: 1 });
      await Promise.all(count(5).map((id) => producer.send(id)));
      const state = await stream.resume("writer");
      expect(state).toEqual({ epoch: 0, sequence: 4, offset: (await stream.head()).offset });
      const heir = connect().producer({ id: "writer" });
      for (const id of count(8).slice((state?.sequence ?? 0) + 1)) await heir.send(id);
      expect(await stored()).toEqual(count(8));
    },
  },
  {
    name: "resume says so where the server cannot say what a producer stored",
    lacks: "reading back of producers",
    async run({ connect }) {
      await connect().create();
      await expect(connect().resume("writer")).rejects.toMatchObject({ code: "unsupported" });
    },
  },
  {
    name: "a producer goes on over a restart of its server, without a gap and without a repetition",
    needs: "files",
    async run({ connect, restart, stored }) {
      const stream = connect();
      await stream.create();
      const producer = stream.producer({ batchRecordsMax: 5 });
      const sent = count(200).map((id) => producer.send(id));
      await sent[20];
      await restart();
      await producer.flush();
      expect(await stored()).toEqual(count(200));
    },
  },
];

export const claiming: readonly Behaviour[] = [...conditional, ...keyed, ...producing];
