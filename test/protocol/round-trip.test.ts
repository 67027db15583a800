// What was appended is what readers get, byte for byte, by every way of reading. PROTOCOL.md §7
import { gunzipSync } from "node:zlib";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { call, controlsOf, openSse, type SseEvent } from "./raw-http.ts";

let server: NodeServer;
let streams = 0;

beforeAll(async () => {
  server = await startNodeServer({ store: "memory", port: 0 });
});

afterAll(async () => {
  await server.stop();
});

const RUNS = { numRuns: 150 };

async function create(contentType: string): Promise<string> {
  streams += 1;
  const path = `/v1/stream/round-trip/${streams}`;
  await call("PUT", server.url, path, { headers: { "content-type": contentType } });
  return path;
}

async function append(
  path: string,
  contentType: string,
  body: string | Uint8Array,
): Promise<string> {
  const headers = { "content-type": contentType };
  const answer = await call("POST", server.url, path, { headers, body });
  expect(answer.status).toBe(204);
  return String(answer.headers["stream-next-offset"]);
}

/** The whole stream in one catch-up read, and as the events of one SSE connection. */
async function readBothWays(path: string): Promise<{ body: Buffer; events: SseEvent[] }> {
  const { body } = await call("GET", server.url, path);
  const live = await openSse(server.url, `${path}?offset=-1&live=sse`);
  await live.until((client) => client.text().includes('"upToDate":true'));
  live.close();
  return { body, events: live.events() };
}

/** Appends one after the other while a reader is live, and answers the reader's events. */
async function followAppends(
  path: string,
  contentType: string,
  bodies: readonly (string | Uint8Array)[],
): Promise<{ events: SseEvent[]; offsets: string[] }> {
  const live = await openSse(server.url, `${path}?offset=-1&live=sse`);
  await live.until((client) => client.events().length === 1);
  const offsets: string[] = [];
  for (const body of bodies) {
    offsets.push(await append(path, contentType, body));
    await live.until((client) => client.events().length === 1 + 2 * offsets.length);
  }
  live.close();
  return { events: live.events().slice(1), offsets };
}

/** Data and control events alternate, and the controls carry the offsets: nothing was injected. */
function expectPairs(events: readonly SseEvent[], offsets: readonly string[]): void {
  expect(events.map(({ event }) => event)).toEqual(offsets.flatMap(() => ["data", "control"]));
  expect(controlsOf(events).map((control) => control.streamNextOffset)).toEqual(offsets);
}

const dataOf = (events: readonly SseEvent[]): string[] =>
  events.filter(({ event }) => event === "data").map(({ data }) => data);

// What the event format keeps of a text: every line, but not which of the three line ends it had.
const asLines = (text: string): string => text.replaceAll(/\r\n?/g, "\n");
// Of JSON it also keeps the count of bytes, so that offsets of records can be told.
const asJsonLines = (text: string): string => text.replaceAll("\r", "\n");

const space = fc.constantFrom("", "", " ", "\n", "\r\n", "\r", "\t ");
const scalar = fc.oneof(
  fc.constantFrom("1.0", "-0", "1e400", "1E+2", "12345678901234567890", "0.1e-7", "true", "null"),
  fc.string({ unit: "binary" }).map((text) => JSON.stringify(text)),
  fc.constantFrom(
    '"\\u0041\\/\\ud83d\\ude00"',
    '"\\ud800"',
    '"\u2028\u2029\u0085"',
    '"data:"',
    '""',
  ),
);

const { value: jsonValue } = fc.letrec<{ value: string }>((tie) => ({
  value: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    scalar,
    fc
      .array(fc.tuple(space, tie("value"), space), { maxLength: 3 })
      .map((items) => `[${items.map((item) => item.join("")).join(",")}]`),
    // Keys may repeat: that is legal, and what is stored must still be what was sent.
    fc
      .array(
        fc.tuple(space, fc.constantFrom('"a"', '"__proto__"', '"\\u0061"'), space, tie("value")),
        {
          maxLength: 3,
        },
      )
      .map(
        (items) =>
          `{${items.map(([one, key, two, value]) => `${one}${key}${two}:${value}`).join(",")}}`,
      ),
  ),
}));

interface JsonBody {
  readonly sent: string;
  readonly records: readonly string[];
}

/** A body as a client may write it, and the records that it holds. */
const jsonBody: fc.Arbitrary<JsonBody> = fc
  .tuple(
    fc.array(fc.tuple(space, jsonValue, space), { minLength: 1, maxLength: 4 }),
    space,
    fc.boolean(),
  )
  .map(([items, around, isBare]) => {
    const [first] = items;
    if (isBare && first !== undefined && !first[1].startsWith("[")) {
      return { sent: first.join(""), records: [first[1]] };
    }
    const sent = `${around}[${items.map((item) => item.join("")).join(",")}]${around}`;
    return { sent, records: items.map(([, value]) => value) };
  });

describe("JSON", () => {
  const type = "application/json";

  test("G8 arbitrary JSON text comes back byte for byte by catch-up and by SSE", async () => {
    const property = fc.asyncProperty(
      fc.array(jsonBody, { minLength: 1, maxLength: 3 }),
      async (bodies) => {
        const path = await create(type);
        for (const { sent } of bodies) await append(path, type, sent);
        const expected = `[${bodies.flatMap(({ records }) => records).join(",")}]`;
        const { body, events } = await readBothWays(path);
        expect(body.toString()).toBe(expected);
        expect(dataOf(events)).toEqual([asJsonLines(expected)]);
      },
    );
    await fc.assert(property, RUNS);
  });

  test("a live reader gets each append as one whole array, and then its control event", async () => {
    const property = fc.asyncProperty(
      fc.array(jsonBody, { minLength: 1, maxLength: 3 }),
      async (bodies) => {
        const path = await create(type);
        const { events, offsets } = await followAppends(
          path,
          type,
          bodies.map(({ sent }) => sent),
        );
        expectPairs(events, offsets);
        expect(dataOf(events)).toEqual(
          bodies.map(({ records }) => asJsonLines(`[${records.join(",")}]`)),
        );
      },
    );
    await fc.assert(property, RUNS);
  });
});

const fragment = fc.oneof(
  fc.constantFrom(
    "\r",
    "\n",
    "\r\n",
    "\n\n",
    "\r\r\n",
    " ",
    "  ",
    ":",
    "\u0000",
    "\ufeff",
    "\u2028",
  ),
  fc.constantFrom(
    "event: control\n",
    'data:{"streamNextOffset":"0000000000000000_9999999999999999"}\n\n',
    "data: ",
    "id: 1\n",
    "retry: 1\r\r",
  ),
  fc.string({ unit: "binary" }),
);
const text = fc
  .array(fragment, { minLength: 1, maxLength: 8 })
  .map((fragments) => fragments.join(""))
  .filter((joined) => joined.length > 0);

describe("text", () => {
  const type = "text/plain; charset=utf-8";

  test("text with any line ends comes back byte for byte by catch-up, and line for line by SSE", async () => {
    const property = fc.asyncProperty(
      fc.array(text, { minLength: 1, maxLength: 4 }),
      async (texts) => {
        const path = await create(type);
        let tail = "";
        for (const one of texts) tail = await append(path, type, one);
        const { body, events } = await readBothWays(path);
        expect(body.toString()).toBe(texts.join(""));
        expectPairs(events, [tail]);
        expect(dataOf(events)).toEqual([asLines(texts.join(""))]);
      },
    );
    await fc.assert(property, RUNS);
  });

  test("no text can end its event or begin another one for a live reader", async () => {
    const property = fc.asyncProperty(
      fc.array(text, { minLength: 1, maxLength: 4 }),
      async (texts) => {
        const path = await create(type);
        const { events, offsets } = await followAppends(path, type, texts);
        expectPairs(events, offsets);
        expect(dataOf(events)).toEqual(texts.map(asLines));
      },
    );
    await fc.assert(property, RUNS);
  });
});

describe("binary", () => {
  const type = "application/octet-stream";
  const chunks = fc.array(fc.uint8Array({ minLength: 1, maxLength: 300 }), {
    minLength: 1,
    maxLength: 4,
  });

  test("bytes come back exactly by catch-up and by base64 in SSE, caught up and live", async () => {
    const property = fc.asyncProperty(chunks, async (parts) => {
      const path = await create(type);
      const { events: live, offsets } = await followAppends(path, type, parts);
      expectPairs(live, offsets);
      expect(dataOf(live)).toEqual(parts.map((part) => Buffer.from(part).toString("base64")));
      const { body, events } = await readBothWays(path);
      expect(body).toEqual(Buffer.concat(parts));
      expectPairs(events, offsets.slice(-1));
      expect(dataOf(events)).toEqual([Buffer.concat(parts).toString("base64")]);
    });
    await fc.assert(property, RUNS);
  });

  test("an event says that it is base64, and one of text does not", async () => {
    for (const [kind, encoding] of [
      [type, "base64"],
      ["text/plain", undefined],
      ["application/json", undefined],
    ] as const) {
      const live = await openSse(server.url, `${await create(kind)}?offset=-1&live=sse`);
      expect(live.headers["stream-sse-data-encoding"]).toBe(encoding);
      live.close();
    }
  });
});

describe("compressed reads", () => {
  const gzip = { "accept-encoding": "gzip" };
  const VARY = "Origin, Accept-Encoding";

  test("gzip gives the same bytes, with Vary and a weak tag that answers 304", async () => {
    const long = fc
      .tuple(text, fc.integer({ min: 300, max: 3000 }))
      .map(([one, times]) => one.repeat(times));
    const property = fc.asyncProperty(long, async (one) => {
      const path = await create("text/plain");
      await append(path, "text/plain", one);
      const plain = await call("GET", server.url, path);
      const packed = await call("GET", server.url, path, { headers: gzip });
      expect(plain.headers["content-encoding"]).toBeUndefined();
      expect([plain.headers.vary, packed.headers.vary]).toEqual([VARY, VARY]);
      expect(packed.headers.etag).toBe(
        Buffer.byteLength(one) < 1024 ? plain.headers.etag : `W/${plain.headers.etag}`,
      );
      const body =
        packed.headers["content-encoding"] === "gzip" ? gunzipSync(packed.body) : packed.body;
      expect(body.equals(plain.body)).toBe(true);
      for (const tag of [plain.headers.etag, packed.headers.etag]) {
        const headers = { ...gzip, "if-none-match": String(tag) };
        const same = await call("GET", server.url, path, { headers });
        expect([same.status, same.text, same.headers.vary]).toEqual([304, "", VARY]);
      }
    });
    await fc.assert(property, { numRuns: 30 });
  });

  test.each([
    ["gzip", true],
    ["GZIP", true],
    ["br, gzip;q=0.5", true],
    ["deflate , gzip", true],
    ["gzip;q=1", true],
    ["gzip;q=1.0", true],
    ["gzip;q=0.50", true],
    ["gzip;q=0", false],
    ["gzip;q=0.0", false],
    ["gzip;q=0.000, br", false],
    ["xgzip", false],
    ["identity", false],
    ["", false],
  ])("Accept-Encoding: %s is understood", async (accepted, isPacked) => {
    const path = await create("application/json");
    await append(path, "application/json", JSON.stringify("a".repeat(5000)));
    const answer = await call("GET", server.url, path, {
      headers: { "accept-encoding": accepted },
    });
    expect(answer.headers["content-encoding"] === "gzip").toBe(isPacked);
  });

  test("what does not get smaller is not compressed", async () => {
    const path = await create("application/octet-stream");
    await append(path, "application/octet-stream", new Uint8Array(5000));
    const answer = await call("GET", server.url, path, { headers: gzip });
    expect(answer.headers["content-encoding"]).toBeUndefined();
  });
});
