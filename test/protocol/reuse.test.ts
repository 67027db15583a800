// A producer's number that comes again with other content: never stored, and never in silence. PROTOCOL.md §5.2
import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DurableStream, IdempotentProducer } from "@durable-streams/client";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AppendFailure, connect } from "../../src/client/client.ts";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { openFileStore } from "../../src/streams/stores/file.ts";
import { call, type HttpAnswer, members } from "./raw-http.ts";

const JSON_TYPE = { "content-type": "application/json" };
let server: NodeServer;

beforeAll(async () => {
  server = await startNodeServer({ store: "memory", port: 0 });
});

afterAll(async () => {
  await server.stop();
});

async function freshPath(): Promise<string> {
  const path = `/v1/stream/reuse/${randomUUID()}`;
  await call("PUT", server.url, path, { headers: JSON_TYPE });
  return path;
}

type Identity = Readonly<Record<string, string>>;
const EPOCH: Identity = { "producer-id": "p", "producer-epoch": "0" };
const SESSION: Identity = { "producer-id": "p", "producer-session": "nonce" };

function send(
  path: string,
  identity: Identity,
  sequence: number,
  body: string,
  more: Record<string, string> = {},
  base = server.url,
): Promise<HttpAnswer> {
  const headers = { ...JSON_TYPE, ...identity, "producer-seq": String(sequence), ...more };
  return call("POST", base, path, { headers, body });
}

function told({ status, headers, text }: HttpAnswer): readonly unknown[] {
  const code = text === "" ? undefined : members({ text }).get("code");
  return [status, headers["producer-seq-reused"], code];
}

const CLOSES = { "stream-closed": "true" };
const REFUSED = [422, undefined, "producer_seq_reused"];
const SAID = [204, "true", undefined];
const KNOWN = [204, undefined, undefined];

describe.each([
  ["an epoch of the public protocol", EPOCH, SAID],
  ["a session", SESSION, REFUSED],
])("with %s", (_what, identity, expected) => {
  test("other content under a known number is not taken for a retry, and nothing is stored", async () => {
    const path = await freshPath();
    expect((await send(path, identity, 0, '"a"')).status).toBe(200);
    expect((await send(path, identity, 1, '"b"')).status).toBe(200);
    expect(told(await send(path, identity, 0, '"a"'))).toEqual(KNOWN);
    expect(told(await send(path, identity, 0, '[ "a" ]'))).toEqual(KNOWN); // The stored bytes are the same.
    expect(told(await send(path, identity, 0, '"x"'))).toEqual(expected);
    expect(told(await send(path, identity, 1, '"a"'))).toEqual(expected);
    expect(told(await send(path, identity, 1, '"b"', CLOSES))).toEqual(expected);
    expect((await call("GET", server.url, path)).text).toBe('["a","b"]');
    expect((await send(path, identity, 2, '"c"', CLOSES)).status).toBe(200);
    expect(told(await send(path, identity, 2, '"c"', CLOSES))).toEqual(KNOWN);
    expect(told(await send(path, identity, 2, '"c"'))).toEqual(expected);
    expect(told(await send(path, identity, 1, '"y"'))).toEqual(expected);
  });

  test("other content under a known number is found after a restart, from the journal and from a snapshot", async () => {
    const directory = await mkdtemp(join(tmpdir(), "hapax-reuse-"));
    const first = await startNodeServer({ port: 0, store: await openFileStore(directory) });
    await call("PUT", first.url, "/s", { headers: JSON_TYPE });
    for (let sequence = 0; sequence < 40; sequence += 1) {
      await send("/s", identity, sequence, String(sequence), {}, first.url);
    }
    await first.stop();
    // The first start replays the journal and its end writes a snapshot, from which the second starts.
    for (const round of ["journal", "snapshot"]) {
      const again = await startNodeServer({ port: 0, store: await openFileStore(directory) });
      const answers: unknown[] = [];
      for (const sequence of [39, 8, 7]) {
        answers.push(told(await send("/s", identity, sequence, String(sequence), {}, again.url)));
        answers.push(told(await send("/s", identity, sequence, '"x"', {}, again.url)));
      }
      // 32 appends are compared; an older one is a duplicate with any content.
      expect([round, answers]).toEqual([round, [KNOWN, expected, KNOWN, expected, KNOWN, KNOWN]]);
      await again.stop();
    }
    await rm(directory, { recursive: true });
  });
});

test("a transaction is refused under a number of other content, and replayed under its own", async () => {
  const path = await freshPath();
  const commit = (identity: Identity, text: string): Promise<HttpAnswer> =>
    call("POST", server.url, "/_hapax/transactions", {
      headers: { ...JSON_TYPE, ...identity, "producer-seq": "0" },
      body: JSON.stringify({ operations: [{ append: { stream: path, data: [text] } }] }),
    });
  for (const [at, identity] of [EPOCH, SESSION].entries()) {
    const own = { ...identity, "producer-id": `${randomUUID()}-${at}` };
    expect((await commit(own, "one")).status).toBe(200);
    expect(told(await commit(own, "two"))).toEqual(REFUSED);
    const again = await commit(own, "one");
    expect([again.status, again.headers["idempotency-replayed"]]).toEqual([200, "true"]);
  }
  expect((await call("GET", server.url, path)).text).toBe('["one","one"]');
});

test("the published producer goes on as before", async () => {
  const path = await freshPath();
  const stream = new DurableStream({ url: server.url + path, contentType: "application/json" });
  await send(path, { "producer-id": "shared", "producer-epoch": "0" }, 0, '"theirs"');
  const errors: unknown[] = [];
  const options = { onError: (error: unknown) => errors.push(error) };
  const producer = new IdempotentProducer(stream, "shared", options);
  producer.append('"lost"');
  await producer.flush();
  producer.append('"stored"');
  await producer.flush();
  await producer.detach();
  expect(errors).toEqual([]);
  expect((await call("GET", server.url, path)).text).toBe('["theirs","stored"]');
});

test("a producer of ours fails, and says that its data is not stored", async () => {
  const path = await freshPath();
  // A writer that took the number first, under the same session: a nonce that was used for two lives.
  const nonces: string[] = [];
  const spying: typeof fetch = async (input, init) => {
    const headers = new Headers(init?.headers);
    const session = headers.get("producer-session");
    const id = headers.get("producer-id") ?? "";
    if (session !== null && nonces.length === 0) {
      nonces.push(session);
      const theirs = { "producer-id": id, "producer-session": session };
      expect((await send(path, theirs, 0, '"theirs"')).status).toBe(200);
    }
    return fetch(input, init);
  };
  const stream = connect(server.url + path, { fetch: spying });
  const failure: unknown = await stream.append("ours").catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(AppendFailure);
  expect(failure).toMatchObject({
    code: "producer_seq_reused",
    retry: "never",
    unconfirmed: [{ data: "ours", outcome: "not_stored", isCause: true }],
  });
  expect((await call("GET", server.url, path)).text).toBe('["theirs"]');
});
