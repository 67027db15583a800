// Typed streams: a schema checks what is written and what is read.
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  connect,
  SchemaFailure,
  type StandardSchema,
  type Stream,
  typed,
} from "../../src/client/client.ts";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";

interface Sent {
  readonly id: number;
  readonly at: string;
}
interface Seen {
  readonly id: number;
  readonly at: Date;
}
type Validate = StandardSchema<Sent, Seen>["~standard"]["validate"];

/** Makes a date of a text, as schemas do that have an input and an output. */
const order = (wait?: (id: number) => Promise<void>): StandardSchema<Sent, Seen> => {
  const check = (value: unknown): Awaited<ReturnType<Validate>> => {
    const { id, at } = value as Partial<Sent>;
    if (typeof id !== "number") return { issues: [{ message: "not a number", path: ["id"] }] };
    return { value: { id, at: new Date(at ?? 0) } };
  };
  const validate: Validate =
    wait === undefined
      ? check
      : async (value) => {
          await wait((value as Sent).id);
          return check(value);
        };
  return { "~standard": { version: 1, vendor: "test", validate } };
};
const AT = "2026-11-18T00:00:00.000Z";
const sent = (id: number): Sent => ({ id, at: AT });
const BAD = { id: "1", at: AT } as unknown as Sent;

let server: NodeServer;
let count = 0;
beforeAll(async () => {
  server = await startNodeServer({ store: "memory", port: 0 });
});
afterAll(() => server.stop());

async function open(): Promise<Stream> {
  count += 1;
  const stream = connect(`${server.url}/v1/stream/typed-${String(count)}`);
  await stream.create();
  return stream;
}

test("what is given is stored, and a reader gets what the schema makes of it", async () => {
  const orders = typed(await open(), order());
  await orders.append(sent(1));
  await orders.update(() => sent(2));
  const producer = orders.producer();
  producer.append(sent(3));
  await producer.send(sent(4));
  await producer.close();
  expect(await orders.stream.read().values()).toEqual([1, 2, 3, 4].map(sent));
  const values = await orders.read().values();
  expect(values.map(({ id, at }) => [id, at.toISOString()])).toEqual(
    [1, 2, 3, 4].map((id) => [id, AT]),
  );
  const ids: number[] = [];
  let last: string | undefined;
  for await (const { value, offset } of orders.read()) {
    ids.push(value.id);
    last = offset ?? last;
  }
  expect([ids, last]).toEqual([[1, 2, 3, 4], (await orders.stream.head()).offset]);
  await orders.stream.close();
  const followed: number[] = [];
  for await (const batch of orders.follow().batches()) {
    expect(batch.bytes).toBeInstanceOf(Uint8Array);
    followed.push(...batch.records.map(({ at }) => at.getTime()));
  }
  expect(followed).toEqual([1, 2, 3, 4].map(() => Date.parse(AT)));
});

test("a record that does not fit is not sent, in any way of writing, and the next one is", async () => {
  const orders = typed(await open(), order());
  const failure = await orders.append(BAD).catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(SchemaFailure);
  expect(failure).toMatchObject({
    code: "invalid_request",
    message: "a record does not fit the schema: not a number at=id",
    issues: [{ path: ["id"] }],
    value: BAD,
  });
  await expect(orders.update(() => BAD)).rejects.toBeInstanceOf(SchemaFailure);
  expect(await orders.update(() => undefined)).toBe(undefined);
  const producer = orders.producer();
  expect(() => {
    producer.append(BAD);
  }).toThrow(SchemaFailure);
  await expect(producer.send(BAD)).rejects.toBeInstanceOf(SchemaFailure);
  producer.append(sent(1));
  await producer.flush();
  expect(await orders.stream.read().values()).toEqual([sent(1)]);
});

test("a stored record that does not fit ends the reading, or is left out if the reader wants that", async () => {
  const stream = await open();
  for (const record of [sent(1), BAD, sent(3)]) await stream.append(record);
  const orders = typed(stream, order());
  const { offset } = await stream.head();
  await expect(orders.read().values()).rejects.toMatchObject({ value: BAD, nextOffset: offset });
  await stream.close();
  const reading = (async () => {
    for await (const _ of orders.follow());
  })();
  await expect(reading).rejects.toBeInstanceOf(SchemaFailure);
  const misfits: unknown[] = [];
  const onMisfit = ({ value }: SchemaFailure): void => void misfits.push(value);
  const read = await orders.read({ onMisfit }).values();
  expect(read.map(({ id }) => id)).toEqual([1, 3]);
  const followed: number[] = [];
  for await (const { value } of orders.follow({ onMisfit })) followed.push(value.id);
  expect([followed, misfits]).toEqual([
    [1, 3],
    [BAD, BAD],
  ]);
});

test("records are stored in the order of the calls, also if the schema takes its time for some", async () => {
  // Later records are checked sooner.
  const orders = typed(
    await open(),
    order((id) => new Promise((resolve) => setTimeout(resolve, 40 - id * 10))),
  );
  const endings = await Promise.allSettled([
    orders.append(sent(0)),
    orders.append(sent(1)),
    orders.append(BAD),
    orders.append(sent(2)),
    orders.append(sent(3)),
  ]);
  expect(endings.map(({ status }) => status)).toEqual([
    "fulfilled",
    "fulfilled",
    "rejected",
    "fulfilled",
    "fulfilled",
  ]);
  expect(await orders.stream.read().values()).toEqual([0, 1, 2, 3].map(sent));
  const producer = orders.producer();
  expect(() => {
    producer.append(sent(4));
  }).toThrow("a producer needs a schema that answers at once");
});
