// Tokens of the client, over real sockets: a door that asks for them, in front of a real server. PROTOCOL.md §21.1.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { inspect } from "node:util";
import { afterEach, beforeEach, expect, test } from "vitest";
import { isHapaxError } from "../../src/base/errors.ts";
import { type ClientOptions, connect, type Stream } from "../../src/client/client.ts";
import { nodeTransport } from "../../src/client/node.ts";
import { connectServer } from "../../src/client/processing.ts";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { type DoorFate, openTokenDoor, type TokenDoor } from "../kits/token-door.ts";

const PATH = "/v1/stream/s";
const RETRY = { pauseMs: 1, pauseMsMax: 5, totalMs: 20_000 };
const endings: (() => Promise<unknown>)[] = [];
let server: NodeServer;
let door: TokenDoor;
let calls = 0;

beforeEach(async () => {
  calls = 0;
  server = await startNodeServer({ store: "memory", port: 0 });
  endings.push(() => server.stop());
  door = await openTokenDoor(server.url);
  endings.push(() => door.close());
  await behind().create();
});

afterEach(async () => {
  for (const end of endings.splice(0).toReversed()) await end();
});

/** The stream without the door. */
const behind = (): Stream => connect(server.url + PATH);

/** A token function that counts its calls. */
const token = async (): Promise<string> => {
  calls += 1;
  return Promise.resolve(door.issue());
};

const open = (options: ClientOptions = {}): Stream =>
  connect(door.url + PATH, { token, retry: RETRY, ...options });

async function errorOf(promise: Promise<unknown>): Promise<Error> {
  const thrown: unknown = await promise.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (!(thrown instanceof Error)) throw new Error("nothing was thrown");
  return thrown;
}

/** Everything that a log could show of a value. */
const shown = (value: unknown): string =>
  inspect(value, { depth: 20, showHidden: true, getters: true }) + JSON.stringify(value);

/** A server of another origin that takes everything. */
async function openElsewhere(): Promise<{ url: string; authorizations: (string | undefined)[] }> {
  const authorizations: (string | undefined)[] = [];
  const other = createServer((request, response) => {
    authorizations.push(request.headers.authorization);
    response.writeHead(200, { "stream-next-offset": "1", "content-type": "text/plain" }).end();
  });
  await new Promise<void>((resolve) => {
    other.listen(0, "127.0.0.1", resolve);
  });
  endings.push(
    () =>
      new Promise((resolve) => {
        other.closeAllConnections();
        other.close(resolve);
      }),
  );
  // Cast: a server that listens on a port has such an address.
  const { port } = other.address() as AddressInfo;
  return { url: `http://127.0.0.1:${String(port)}`, authorizations };
}

test("a text as token goes with every request of a stream", async () => {
  const stream = open({ token: door.issue() });
  await stream.create();
  await stream.head();
  await stream.append(1);
  await stream.append(2, { key: "two" });
  await stream.update(() => 3);
  await using producer = stream.producer({ id: "writer" });
  producer.append(4);
  await producer.flush();
  expect((await stream.resume("writer"))?.sequence).toBe(0);
  expect(await stream.read().values()).toEqual([1, 2, 3, 4]);
  for (const live of ["sse", "long-poll"] as const) {
    const seen: unknown[] = [];
    for await (const { value } of stream.follow({ live })) {
      seen.push(value);
      if (seen.length === 4) break;
    }
    expect(seen).toEqual([1, 2, 3, 4]);
  }
  await (await stream.fork("/v1/stream/fork")).delete();
  await stream.close();
  expect(door.refusals).toBe(0);
  expect(new Set(door.visits.map(({ authorization }) => authorization))).toEqual(
    new Set([`Bearer ${door.issue()}`]),
  );
  expect(new Set(door.visits.map(({ method }) => method))).toEqual(
    new Set(["PUT", "HEAD", "POST", "GET", "DELETE"]),
  );
});

test("a text as token is refused once: there is no other one", async () => {
  const error = await errorOf(open({ token: "hapax-secret-0" }).head());
  expect(isHapaxError(error, "unauthenticated")).toBe(true);
  expect(door.visits).toHaveLength(1);
});

test("a function is called once for many requests, and once more for all that its token fails", async () => {
  const stream = open();
  await Promise.all(Array.from({ length: 10 }, () => stream.head()));
  expect(calls).toBe(1);
  door.expire();
  await Promise.all(Array.from({ length: 20 }, () => stream.head()));
  expect(calls).toBe(2);
  expect(door.refusals).toBe(20);
});

test("a refusal that comes late does not ask for a third token", async () => {
  const stream = open();
  await stream.head();
  door.expire();
  let release: () => void = () => undefined;
  const isReleased = new Promise<void>((resolve) => {
    release = resolve;
  });
  door.decide = async ({ method, authorization }): Promise<DoorFate> => {
    if (method === "GET" && authorization?.endsWith("-1") === true) await isReleased;
    return "by token";
  };
  const slow = stream.read().values();
  await stream.head();
  release();
  await slow;
  expect(calls).toBe(2);
});

test("a second 401 in a row is the caller's error, with the code of the server", async () => {
  const stream = open({ token: () => `hapax-secret-${String((calls += 1) - 10)}` });
  const error = await errorOf(stream.read().values());
  expect(error).toMatchObject({ code: "credential_expired", status: 401, retry: "never" });
  expect(door.visits).toHaveLength(2);
  expect(calls).toBe(2);
});

test("a function that throws ends the call: nothing is sent, and it is called once", async () => {
  const stream = open({
    retry: { ...RETRY, totalMs: 200 },
    token: () => {
      calls += 1;
      throw new Error("the vault is closed");
    },
  });
  const error = await errorOf(stream.head());
  expect(error).toMatchObject({ code: "unauthenticated", status: 401, retry: "never" });
  expect(error.message).toContain("the vault is closed");
  expect(calls).toBe(1);
  expect(await errorOf(stream.append(1))).toMatchObject({ code: "unauthenticated" });
  expect(door.visits).toEqual([]);
});

test("a function that throws after a 401 ends the call, and the next call asks it again", async () => {
  let isOpen = true;
  const stream = open({
    token: () => {
      calls += 1;
      if (!isOpen) throw new Error("the vault is closed");
      return door.issue();
    },
  });
  await stream.head();
  door.expire();
  isOpen = false;
  expect(await errorOf(stream.head())).toMatchObject({ code: "unauthenticated" });
  expect(calls).toBe(2);
  isOpen = true;
  await stream.head();
  expect(calls).toBe(3);
});

test("403 is sent once, and 503 again after Retry-After", async () => {
  const stream = open();
  door.decide = () => "forbid";
  expect(await errorOf(stream.read().values())).toMatchObject({ code: "not_allowed", status: 403 });
  expect(await errorOf(stream.head())).toMatchObject({ code: "not_allowed", status: 403 });
  expect(door.visits).toHaveLength(2);
  door.decide = ({ earlier }) => (earlier === 0 ? "unavailable" : "by token");
  const startedMs = performance.now();
  await stream.delete();
  expect(performance.now() - startedMs).toBeGreaterThan(990);
  expect(calls).toBe(1);
});

for (const [name, transport] of [
  ["fetch", undefined],
  ["node:http", nodeTransport()],
] as const) {
  test(`a token is not sent to another origin, by ${name}`, async () => {
    const other = await openElsewhere();
    const door = createServer((_request, response) => {
      response.writeHead(307, { location: `${other.url}/elsewhere` }).end();
    });
    await new Promise<void>((resolve) => {
      door.listen(0, "127.0.0.1", resolve);
    });
    endings.push(
      () =>
        new Promise((resolve) => {
          door.closeAllConnections();
          door.close(resolve);
        }),
    );
    // Cast: a server that listens on a port has such an address.
    const { port } = door.address() as AddressInfo;
    const url = `http://127.0.0.1:${String(port)}${PATH}`;
    const stream = connect(url, {
      token: "hapax-secret-1",
      retry: RETRY,
      ...(transport === undefined ? {} : { transport }),
    });
    expect((await stream.head()).offset).toBe("1");
    await stream.fork(`${other.url}/fork`);
    expect(other.authorizations.length).toBeGreaterThan(1);
    expect(new Set(other.authorizations)).toEqual(new Set([undefined]));
  });
}

test("G48 neither handles nor errors show the token", async () => {
  for (const options of [
    { token: door.issue() },
    { token },
    { token, transport: nodeTransport() },
  ]) {
    const stream = open(options);
    const producer = stream.producer();
    producer.append(1);
    await producer.flush();
    const hapax = connectServer(door.url, options);
    for (const handle of [stream, producer, hapax, hapax.stream(PATH), stream.follow()]) {
      expect(shown(handle)).not.toContain(door.mark);
    }
    const errors: Error[] = [];
    for (const fate of ["refuse", "forbid", "cut"] as const) {
      door.decide = () => fate;
      const hasty = open({ ...options, retry: { pauseMs: 1, totalMs: 5 } });
      const writer = hasty.producer();
      writer.append(1);
      errors.push(
        await errorOf(hasty.head()),
        await errorOf(hasty.append(1)),
        await errorOf(hasty.read().values()),
        await errorOf(writer.flush()),
      );
    }
    door.decide = () => "by token";
    for (const error of errors) expect(shown(error)).not.toContain(door.mark);
  }
});

test("a token that cannot be sent is not in the error either", async () => {
  for (const bad of [`${door.mark}\n`, `${door.mark} two`, `${door.mark}é`, ""]) {
    for (const given of [bad, () => bad]) {
      for (const transport of [undefined, nodeTransport()]) {
        const options = { token: given, ...(transport === undefined ? {} : { transport }) };
        const error = await errorOf(open(options).head());
        expect(error).toMatchObject({ code: "unauthenticated" });
        expect(shown(error)).not.toContain(door.mark);
      }
    }
  }
  expect(door.visits).toEqual([]);
});
