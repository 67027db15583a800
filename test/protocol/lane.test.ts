// The lane against node:http: the same bytes, however they are cut, get the same answers byte for byte and
// leave the same streams. PROTOCOL.md §13
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { call, openSocket } from "./raw-http.ts";

/** Time limits end every session; they are so long that a busy machine does not meet them between. */
const LIMITS_OF_TIME = { headersTimeoutMs: 2500, requestTimeoutMs: 2500, keepAliveTimeoutMs: 1 };
const SESSIONS_AT_ONCE = 180;

interface Session {
  /** Requests with an unambiguous end: each gets one answer. */
  readonly requests: readonly string[];
  /** Bytes that come when all those are answered. */
  readonly last: string;
  /** Where the bytes are cut, as shares of the whole. */
  readonly cuts: readonly number[];
}

interface Outcome {
  readonly answers: string;
  readonly stored: readonly string[];
}

let onLane: NodeServer;
let onHttp: NodeServer;
let sessions = 0;

beforeAll(async () => {
  onLane = await startNodeServer({ store: "memory", port: 0, ...LIMITS_OF_TIME });
  onHttp = await startNodeServer({
    store: "memory",
    port: 0,
    ...LIMITS_OF_TIME,
    hasFastLane: false,
  });
});

afterAll(async () => {
  await onLane.stop();
  await onHttp.stop();
});

/** How many answers are whole; interim ones do not count. */
function countAnswers(received: string): number {
  let count = 0;
  for (let at = 0; at < received.length;) {
    const end = received.indexOf("\r\n\r\n", at);
    if (end === -1) return count;
    const head = received.slice(at, end);
    const length = Number(/^content-length: (\d+)/im.exec(head)?.[1] ?? 0);
    at = end + 4 + length;
    if (at <= received.length && !head.startsWith("HTTP/1.1 1")) count += 1;
  }
  return count;
}

function cutAt(text: string, cuts: readonly number[]): string[] {
  const ends = [...new Set(cuts.map((share) => Math.floor(share * text.length)))];
  ends.sort((one, other) => one - other);
  ends.push(text.length);
  return ends.map((end, index) => text.slice(index === 0 ? 0 : ends[index - 1], end));
}

async function play(server: NodeServer, session: Session, number: number): Promise<Outcome> {
  const streams = [`/${number}/text`, `/${number}/json`];
  const types = ["text/plain", "application/json"];
  for (const [index, path] of streams.entries()) {
    await call("PUT", server.url, path, { headers: { "content-type": types[index] ?? "" } });
  }
  const socket = await openSocket(server.url);
  let received = "";
  let wake = (): void => undefined;
  socket.setEncoding("latin1");
  socket.on("data", (text) => {
    received += String(text);
    wake();
  });
  const closed = new Promise<void>((resolve) => {
    socket.once("close", () => {
      resolve();
      wake();
    });
  });
  const send = async (text: string): Promise<void> => {
    for (const piece of cutAt(text.replaceAll("{n}", String(number)), session.cuts)) {
      if (socket.writable) socket.write(piece, "latin1");
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  await send(session.requests.join(""));
  while (countAnswers(received) < session.requests.length && !socket.closed) {
    await new Promise<void>((resolve) => {
      wake = resolve;
    });
  }
  await send(session.last);
  await closed;
  const stored = await Promise.all(streams.map((path) => call("GET", server.url, path)));
  // Interim answers do not keep the order of the others: node:http sends them at once.
  const answers = received.replaceAll("HTTP/1.1 100 Continue\r\n\r\n", "");
  return {
    answers: answers
      .replaceAll(/Date: .*\r\n/g, "Date: now\r\n")
      .replaceAll(/X-Request-Id: [\da-f]{12}-\d+\r\n/g, "X-Request-Id: made\r\n")
      .replaceAll(`/${number}/`, "/n/"),
    stored: stored.map(({ text }) => text),
  };
}

async function expectSame(all: readonly Session[]): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  for (let from = 0; from < all.length; from += SESSIONS_AT_ONCE) {
    const some = all.slice(from, from + SESSIONS_AT_ONCE);
    const played = await Promise.all(
      some.map(async (session) => {
        sessions += 1;
        const number = sessions;
        const [lane, http] = await Promise.all([
          play(onLane, session, number),
          play(onHttp, session, number),
        ]);
        return { session, lane, http };
      }),
    );
    for (const { session, lane, http } of played) {
      expect({ session, ...lane }).toEqual({ session, ...http });
      outcomes.push(lane);
    }
  }
  return outcomes;
}

const bodies = ["x", "1", "[1,2]", '{"a":"\u00e9"}', "", "[]", "{", "y".repeat(3000)];

/** A request of known length: usual ones, and others that are legal but not for the lane. */
const request: fc.Arbitrary<string> = fc
  .record({
    line: fc.constantFrom(
      ...Array.from({ length: 6 }, () => "POST /{n}/text"),
      ...Array.from({ length: 4 }, () => "POST /{n}/json"),
      ...["POST /{n}/te%78t", "POST /{n}/text?a=b", "POST /missing", "POST //x", "POST /_hapax/x"],
      ...["HEAD /missing", "OPTIONS /{n}/text", "PATCH /{n}/text", "POST /v1/stream/__ds/x"],
    ),
    type: fc.constantFrom("text/plain", "application/json", "Text/Plain; charset=utf-8", "x y"),
    body: fc.constantFrom(...bodies),
    framing: fc.constantFrom("length", "length", "length", "length", "chunked", "zeros"),
    fields: fc.subarray(
      [
        ...[
          "Stream-Closed: no",
          "Stream-Seq: a",
          "User-Agent: a  b",
          "Accept: */*",
          "X:",
          "X: \t y ",
        ],
        ...[
          "Connection: keep-alive",
          "Connection: Keep-Alive",
          "Origin: http://o",
          "Origin: http://localhost:1",
          "Expect: 100-continue",
        ],
        ...[
          "Content-Encoding: zstd",
          "Accept-Encoding: gzip",
          "X-Same: 1\r\nx-same: 2",
          "X: \u00e9",
        ],
        ...[
          "Producer-Id: p\r\nProducer-Epoch: 0\r\nProducer-Seq: 0",
          "Producer-Id: p",
          "TE: trailers",
        ],
        ...["Producer-Id: q\r\nProducer-Epoch: 1\r\nProducer-Seq: 0", "Stream-Closed: true"],
      ],
      { maxLength: 3 },
    ),
    host: fc.constantFrom("Host: localhost", "host: localhost:80", "HOST:localhost"),
  })
  .map(({ line, type, body, framing, fields, host }) => {
    const bytes = Buffer.from(body).toString("latin1");
    const isFramed = line.startsWith("POST") || line.startsWith("PATCH");
    const head = `${line} HTTP/1.1\r\n${[host, `Content-Type: ${type}`, ...fields].join("\r\n")}\r\n`;
    if (!isFramed) return `${head}\r\n`;
    if (framing === "chunked") {
      const chunk = bytes === "" ? "" : `${bytes.length.toString(16)}\r\n${bytes}\r\n`;
      return `${head}Transfer-Encoding: chunked\r\n\r\n${chunk}0\r\n\r\n`;
    }
    return `${head}Content-Length: ${framing === "zeros" ? "00" : ""}${bytes.length}\r\n\r\n${bytes}`;
  });

const GOOD =
  "POST /{n}/text HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nProducer-Id: z\r\n" +
  "Producer-Epoch: 0\r\nProducer-Seq: 0\r\nContent-Length: 3\r\n\r\nend";

const cuts = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 6 });

test("sessions of usual and unusual requests get the same answers as from node:http", async () => {
  const session = fc.record({
    requests: fc.array(request, { minLength: 1, maxLength: 8 }),
    last: fc.constant(""),
    cuts,
  });
  const outcomes = await expectSame(fc.sample(session, { numRuns: 240, seed: 12 }));
  const statuses = new Set(
    outcomes.flatMap(({ answers }) => answers.match(/HTTP\/1\.1 \d+/g) ?? []),
  );
  // So that the comparison has something to compare.
  for (const status of [200, 204, 400, 404, 405, 409, 415]) {
    expect([...statuses]).toContain(`HTTP/1.1 ${status}`);
  }
});

test("a request with one byte changed, put in or left out gets the same answer as from node:http", async () => {
  const change = fc
    .tuple(fc.nat(GOOD.length - 1), fc.constantFrom("change", "put", "leave"), fc.nat(255))
    .map(([at, kind, byte]) => {
      const piece = kind === "leave" ? "" : String.fromCharCode(byte);
      return GOOD.slice(0, at) + piece + GOOD.slice(kind === "put" ? at : at + 1);
    });
  const session = fc.record({
    requests: fc.constant([GOOD.replace("z", "a")]),
    last: change,
    cuts,
  });
  await expectSame(fc.sample(session, { numRuns: 300, seed: 13 }));
});

describe("what could hide a request in another", () => {
  const start = "POST /{n}/text HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n";
  const hidden = start.replace("text/plain", "text/plain\r\nContent-Length: 6") + "\r\nhidden";
  const attempts = [
    `Content-Length: 3\r\nContent-Length: ${hidden.length}\r\n\r\nend${hidden}`,
    `Content-Length: ${hidden.length}\r\nContent-Length: 3\r\n\r\nend${hidden}`,
    `Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${hidden}`,
    `Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n${hidden}`,
    `Transfer-Encoding: identity\r\nContent-Length: 3\r\n\r\nend${hidden}`,
    `Transfer-Encoding : chunked\r\nContent-Length: 3\r\n\r\nend${hidden}`,
    `X: y\r\n Content-Length: 99\r\nContent-Length: 3\r\n\r\nend${hidden}`,
    `X: y\nContent-Length: 99\r\nContent-Length: 3\r\n\r\nend${hidden}`,
    `X: y\rContent-Length: 99\r\nContent-Length: 3\r\n\r\nend${hidden}`,
    `Content-Length: 3, 3\r\n\r\nend${hidden}`,
    `Content-Length: +3\r\n\r\nend${hidden}`,
    `Content-Length: 0x3\r\n\r\nend${hidden}`,
    `Content-Length:\t3\r\n\r\nend${hidden}`,
    `Content-Length: 3 \r\n\r\nend${hidden}`,
    `e1ntent-length: 3\r\n\r\n${hidden}`,
    `Connection: close\r\nContent-Length: 3\r\n\r\nend${hidden}`,
    `Connection: Content-Length\r\nContent-Length: 3\r\n\r\nend${hidden}`,
    `Upgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 3\r\n\r\nend${hidden}`,
    `\r\n${hidden}`,
    `Content-Length: 3\r\n\r\nend\r\n\r\n${hidden}`,
    `Content-Length: 3\r\n\r\nend \r\n${hidden}`,
  ].map((rest) => start + rest);

  test("has the same end as with node:http, in one piece and in many", async () => {
    const all = attempts.flatMap((last) =>
      [[], [0.5], [0.2, 0.4, 0.6, 0.8]].map((where) => ({ requests: [GOOD], last, cuts: where })),
    );
    await expectSame(all);
  });
});
