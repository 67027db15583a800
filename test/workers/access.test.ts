// PROTOCOL.md §21 in Durable Objects, behind the Worker, in a real workerd: the callers of the access matrix, and readers whose
// credential ends.
import { randomBytes } from "node:crypto";
import { type IncomingMessage, request as requestOf } from "node:http";
import type { Duplex } from "node:stream";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { type Caller, callerAt, expectedOf, HOME, openDoor } from "../kits/access-callers.ts";
import {
  type AsOwner,
  type Facts,
  type Names,
  type SampleRequest,
  SAMPLES,
} from "../kits/access-samples.ts";
import { type ObjectsHost, startObjects, whyNoWorkerd } from "../kits/workerd-objects.ts";
import { requirePart } from "../client/runtimes-kit.ts";

const isLong = process.env["HAPAX_LONG"] !== undefined;
const why = whyNoWorkerd();
const TIME_MS = 120_000;
/** Long enough to open a reader on a busy machine, and short enough to wait for. */
const LIFE_MS = 6000;
const source = new URL("fixtures/access-worker.ts", import.meta.url);
const door = openDoor(Math.floor(Date.now() / 1000));
door.revoke();
let host: ObjectsHost;

beforeAll(async () => {
  if (why !== undefined) return;
  host = await startObjects({
    source,
    classes: ["Streams"],
    texts: { ACCESS: JSON.stringify(door.settings()) },
  });
}, TIME_MS);

afterAll(async () => {
  door.close();
  if (why === undefined) await host.stop();
});

if (why !== undefined) {
  test("access in objects", (context) => {
    requirePart(context, undefined, why);
  });
}

async function send(
  method: string,
  { target, headers = {}, body }: SampleRequest,
  authorization?: string,
): Promise<{ readonly status: number; readonly headers: Headers; readonly text: string }> {
  const answer = await fetch(`${host.url}${target}`, {
    method,
    headers: { ...headers, ...(authorization === undefined ? {} : { authorization }) },
    ...(body === undefined ? {} : { body }),
  });
  return { status: answer.status, headers: answer.headers, text: await answer.text() };
}

const asOwner: AsOwner = async (method, request) => {
  const { status, text } = await send(method, request, door.owner);
  expect(status, `${method} ${request.target}: ${text}`).toBeLessThan(300);
  return text === "" ? {} : (JSON.parse(text) as Facts);
};

let cases = 0;

function freshNames(): Names {
  const mark = `case-${(cases += 1)}-`;
  const stream = `${HOME}/${mark}`;
  const names = { group: `g-${mark}`, subscription: `s-${mark}`, producer: `p-${mark}` };
  return { mark, stream, wakes: `${stream}/wakes`, key: `k-${mark}`, ...names };
}

const noReceiver = { url: "", wakeOf: () => Promise.reject(new Error("there are no webhooks")) };

/** Here are no sockets of ours, so no certificates, and no webhooks. */
const callers = door.callers.filter(({ certificate }) => certificate === undefined);
const SHORT = new Set(
  ["GET", "HEAD", "POST", "PUT", "DELETE"]
    .map((method) => `${method} /{stream...}`)
    .concat("POST /_hapax/transactions"),
);
const operations = Object.entries(SAMPLES).flatMap(([path, samples]) =>
  Object.entries(samples)
    .filter(([, { needs }]) => needs !== "token")
    // The rest runs in npm run test:crash; on the same code it is in the matrix of the other runtimes.
    .filter(([key]) => isLong || SHORT.has(`${key} ${path}`))
    // No object has these: parts.test.ts sees how they are refused.
    .filter(() => path !== "/_hapax/ui" && path !== "/_hapax/follow")
    .map(([key, sample]) => [`${key} ${path}`, { path, key, sample }] as const),
);

async function checkCase(
  { path, key, sample }: (typeof operations)[number][1],
  given: Caller,
): Promise<void> {
  const [method = ""] = key.split(" ");
  const caller = callerAt(given, path, method);
  const names = freshNames();
  const facts = (await sample.prepare?.(names, asOwner, noReceiver)) ?? {};
  const { outcome, isRight } = expectedOf(sample, caller);
  const request = sample.request(names, facts);
  const target = await door.sign(caller, request.target);
  const answer = await send(method, { ...request, target }, caller.authorization);
  const isProblem = answer.headers.get("content-type") === "application/problem+json";
  const code = isProblem && answer.text !== "" ? (JSON.parse(answer.text) as Facts)["code"] : "";
  const wanted = method === "HEAD" ? "" : (outcome[1] ?? "");
  expect([caller.name, answer.status, code], answer.text).toEqual([
    caller.name,
    outcome[0],
    wanted,
  ]);
  expect(answer.headers.get("x-request-id")).toMatch(/./);
  expect(answer.headers.get("x-content-type-options")).toBe("nosniff");
  if (answer.status === 401) expect(answer.headers.get("www-authenticate")).toMatch(/^Bearer /);
  if (!isRight) expect(answer.text, caller.name).not.toContain(names.mark);
}

describe.runIf(why === undefined)("access in objects", () => {
  test.each(operations)(
    "G40 %s answers every credential as its grants say",
    async (_name, operation) => {
      // A few at a time: all go to one object.
      for (let at = 0; at < callers.length; at += 6) {
        await Promise.all(callers.slice(at, at + 6).map((caller) => checkCase(operation, caller)));
      }
    },
    TIME_MS,
  );

  test("a page of a foreign origin gets nothing", async () => {
    const headers = { origin: "https://evil.example" };
    const { status, text } = await send("GET", { target: HOME, headers }, door.owner);
    expect([status, (JSON.parse(text) as Facts)["code"]]).toEqual([403, "origin_not_allowed"]);
  });

  test("a refusal of the Worker has a request id, and the headers of every answer", async () => {
    const headers = { "X-Request-Id": "mine-1" };
    const answer = await send("PUT", { target: "/none/s", headers });
    expect(answer.status).toBe(400);
    const { "x-request-id": id, "x-content-type-options": sniff } = Object.fromEntries(
      answer.headers,
    );
    expect([id, sniff]).toEqual(["mine-1", "nosniff"]);
    const forged = await send("PUT", { target: "/none/s", headers: { "X-Request-Id": "a b" } });
    expect(forged.headers.get("x-request-id")).toMatch(/^[0-9a-f]{12}-1$/);
  });

  test("a header of the Worker that a client sends takes no body away", async () => {
    const { stream } = freshNames();
    const headers = { "Content-Type": "text/plain" };
    await asOwner("PUT", { target: stream, headers });
    const append = { target: stream, headers: { ...headers, "Hapax-Bridge": "1" }, body: "all" };
    await asOwner("POST", append);
    expect((await send("GET", { target: stream }, door.owner)).text).toBe("all");
  });

  test(
    "G72 a reader that holds the socket of its object itself gets nothing when its credential is over",
    async () => {
      const { stream } = freshNames();
      const headers = { "Content-Type": "text/plain" };
      await asOwner("PUT", { target: stream, headers });
      const caller: Caller = { name: "a signed URL", signs: "read" };
      const endsAtMs = Date.now() + LIFE_MS;
      const signed = await door.sign(caller, `${stream}?offset=-1&live=sse`, endsAtMs);
      const reader = await openSocket(signed);
      await asOwner("POST", { target: stream, headers, body: "in time" });
      await vi.waitFor(() => expect(reader.said()).toContain("in time"), { timeout: 20_000 });
      // What the object knew of the reader is gone; what the socket keeps is not.
      await host.object("Streams", "all").evict();
      await vi.waitFor(() => expect(Date.now()).toBeGreaterThan(endsAtMs + 500), {
        timeout: 20_000,
      });
      await asOwner("POST", { target: stream, headers, body: "too late" });
      await vi.waitFor(() => expect(reader.isOver()).toBe(true), { timeout: 20_000 });
      expect(reader.said()).not.toContain("too late");
      expect((await send("GET", { target: signed })).status).toBe(401);
    },
    TIME_MS,
  );
});

interface RawSocket {
  /** Everything that came, as it came: frames to a client are not masked. */
  readonly said: () => string;
  /** The object has closed it. */
  readonly isOver: () => boolean;
}

/** A WebSocket to the object itself, past the Worker, as a Worker of one's own might give it to a client. */
async function openSocket(target: string): Promise<RawSocket> {
  const path = `/_kit/object?class=Streams&name=all&path=${encodeURIComponent(target)}`;
  const sent = requestOf(`${host.url}${path}`, {
    headers: {
      Connection: "Upgrade",
      Upgrade: "websocket",
      "Sec-WebSocket-Version": "13",
      "Sec-WebSocket-Key": randomBytes(16).toString("base64"),
      "Hapax-Bridge": "1",
    },
  });
  const socket = await new Promise<Duplex>((resolve, reject) => {
    sent.once("upgrade", (_answer: IncomingMessage, upgraded: Duplex) => resolve(upgraded));
    sent.once("response", (answer) => reject(new Error(`status ${String(answer.statusCode)}`)));
    sent.once("error", reject);
    sent.end();
  });
  let said = "";
  let isOver = false;
  socket.on("data", (piece: Buffer) => {
    said += piece.toString("latin1");
    // A frame that closes, of two bytes and a reason.
    if (piece.includes(0x88)) isOver = true;
  });
  socket.on("close", () => {
    isOver = true;
  });
  socket.on("error", () => undefined);
  return { said: () => said, isOver: () => isOver };
}
