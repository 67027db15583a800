// A client that holds the socket of a reader itself, and sends what no Worker would: nothing that others see changes. In a real workerd.
import { request } from "node:http";
import type { Socket } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { requirePart } from "../client/runtimes-kit.ts";
import { whyNoWorkerd } from "../kits/workerd-objects.ts";
import { append, create, LiveReader, readWhole, type Stage, startStage } from "./streams-stage.ts";

const why = whyNoWorkerd();
let stage: Stage;

beforeAll(async () => {
  if (why === undefined) stage = await startStage({ HEARTBEAT_MS: "200" });
}, 60_000);

afterAll(async () => {
  if (why === undefined) await stage.stop();
});

if (why !== undefined) {
  test("frames of strangers", (context) => {
    requirePart(context, undefined, why);
  });
}

const [CONTINUATION, TEXT, BYTES, RESERVED, CLOSE, PING] = [0, 1, 2, 3, 8, 9];

/** A frame of RFC 6455. Its mask is zero, so that its bytes stay as they are. */
function frame(code: number, content: string | Buffer, isMasked = true): Buffer {
  const data = Buffer.from(content);
  const head = Buffer.alloc(10);
  head[0] = 0x80 | code;
  head[1] = (isMasked ? 0x80 : 0) | 127;
  head.writeBigUInt64BE(BigInt(data.length), 2);
  return Buffer.concat([head, Buffer.alloc(isMasked ? 4 : 0), data]);
}

const FRAMES: Readonly<Record<string, Buffer>> = {
  "a number below zero": frame(TEXT, "-5"),
  "a number without an end": frame(TEXT, "1e400"),
  "more than was ever sent": frame(TEXT, String(Number.MAX_SAFE_INTEGER)),
  "no number": frame(TEXT, "NaN"),
  nothing: frame(TEXT, ""),
  bytes: frame(BYTES, Buffer.alloc(1000)),
  "no UTF-8": frame(TEXT, Buffer.from([0xff, 0xfe])),
  "no mask": frame(TEXT, "1", false),
  "a code of the future": frame(RESERVED, "1"),
  "the end of nothing": frame(CONTINUATION, "1"),
  "a long ping": frame(PING, Buffer.alloc(200)),
  "a long number": frame(TEXT, Buffer.alloc(5_000_000, "1")),
  "more than a message may have": frame(TEXT, Buffer.alloc(40_000_000, "1")),
  "half a code of a close": frame(CLOSE, Buffer.from([3])),
  "a code that no close has": frame(CLOSE, Buffer.from([0xff, 0xff])),
  "many at once": Buffer.concat(Array.from({ length: 20_000 }, () => frame(TEXT, "7"))),
};

/** The object itself, as a Worker without a door would let it be reached. */
function openSocket(name: string): Promise<Socket> {
  const path = encodeURIComponent(`/v1/stream/@${name}/s?offset=-1&live=sse`);
  const url = `${stage.host.url}/_kit/object?class=Streams&name=${name}&path=${path}`;
  const headers = {
    Upgrade: "websocket",
    Connection: "Upgrade",
    "Sec-WebSocket-Key": "x3JJHMbDL1EzLkh9GBhXDw==",
    "Sec-WebSocket-Version": "13",
    "Hapax-Bridge": "1",
  };
  return new Promise((resolve, reject) => {
    const asked = request(url, { headers });
    asked.on("upgrade", (_, socket) => {
      socket.on("error", () => undefined);
      // Cast: over TCP.
      resolve(socket as Socket);
    });
    asked.on("response", ({ statusCode }) => {
      reject(new Error(`no upgrade: ${String(statusCode)}`));
    });
    asked.on("error", reject);
    asked.end();
  });
}

describe.runIf(why === undefined)("frames of strangers", () => {
  test("G72 change nothing for the object and its other readers", async () => {
    const url = stage.url("frames", "s");
    await create(url);
    const reader = new LiveReader(url);
    await reader.opens();
    const { life } = await stage.life("frames");
    const sockets: Socket[] = [];
    let text = "";
    for (const [at, [what, bytes]] of Object.entries(FRAMES).entries()) {
      const socket = await openSocket("frames");
      sockets.push(socket);
      socket.write(bytes);
      const body = `<${what}>`;
      expect(await append(url, body, ["w", at]), what).toBe(200);
      text += body;
    }
    await reader.has(text.length);
    expect([reader.text, reader.opened]).toEqual([text, 1]);
    expect(await readWhole(url)).toBe(text);
    expect((await stage.life("frames")).life).toBe(life);
    for (const socket of sockets) socket.destroy();
    await reader.stop();
  }, 60_000);
});
