// The policy holds for every runtime: these exchanges come from none.
import { gunzipSync, gzipSync } from "node:zlib";
import { expect, test } from "vitest";
import { HapaxError } from "../../base/errors.ts";
import { Doors } from "./doors.ts";
import type { ServerAnswer, Exchange, WholeAnswer } from "./exchange.ts";
import { finishAnswer } from "./policy.ts";
import { failureAnswer, isRefusal } from "./problem.ts";

const EMPTY = new Uint8Array(0);

function exchangeOf(method: string, headers: Readonly<Record<string, string>> = {}): Exchange {
  return {
    method,
    path: "/v1/stream/orders",
    query: "",
    baseUrl: "http://localhost",
    authority: "localhost",
    header: (name) => headers[name],
    hasBody: false,
    body: () => Promise.resolve(EMPTY),
    onAbort: () => undefined,
  };
}

const gzip = (body: Uint8Array): Promise<Uint8Array> => Promise.resolve(gzipSync(body));

const openDoors = new Doors({ corsOrigins: "*", address: "127.0.0.1", publicUrl: undefined });
const ownDoors = new Doors({
  corsOrigins: ["https://app.example"],
  address: "127.0.0.1",
  publicUrl: undefined,
});

async function whole(
  exchange: Exchange,
  answer: ServerAnswer,
  doors: Doors = ownDoors,
): Promise<WholeAnswer> {
  const finished = await finishAnswer(exchange, answer, "id-1", doors, gzip);
  if ("live" in finished) throw new Error("the answer is live");
  return finished;
}

test.each([
  ["POST", {}, false, false],
  ["POST", { origin: "https://example.com" }, true, false],
  ["OPTIONS", {}, true, false],
  ["GET", {}, true, true],
] as const)(
  "an answer to %s with %j of a server for every page says what a browser may see and do",
  async (method, headers, isOpen, isSandboxed) => {
    const ready = { status: 200, headers: { X: "1" } };
    const answer = await whole(exchangeOf(method, headers), ready, openDoors);
    expect(answer.headers["X-Content-Type-Options"]).toBe("nosniff");
    expect(answer.headers["Cross-Origin-Resource-Policy"]).toBe("cross-origin");
    expect(answer.headers["Access-Control-Allow-Origin"]).toBe(isOpen ? "*" : undefined);
    expect("Content-Security-Policy" in answer.headers).toBe(isSandboxed);
    expect(answer.headers["X"]).toBe("1");
  },
);

test.each([
  ["GET", undefined, undefined],
  ["POST", undefined, undefined],
  ["GET", "https://app.example", "https://app.example"],
  ["POST", "http://localhost:3000", "http://localhost:3000"],
  ["OPTIONS", "https://app.example", "https://app.example"],
  ["OPTIONS", "https://other.example", undefined],
  ["GET", "null", undefined],
] as const)(
  "an answer to %s from a page of %s names the origin %s alone",
  async (method, origin, named) => {
    const headers = origin === undefined ? {} : { origin };
    const answer = await whole(exchangeOf(method, headers), { status: 200, headers: {} });
    expect(answer.headers["Access-Control-Allow-Origin"]).toBe(named);
    expect("Access-Control-Expose-Headers" in answer.headers).toBe(named !== undefined);
    expect(answer.headers["Cross-Origin-Resource-Policy"]).toBe("same-origin");
    const differs = method === "GET" || named !== undefined;
    expect(answer.headers["Vary"]).toBe(differs ? "Origin" : undefined);
  },
);

test("a large answer is compressed for a client that accepts it, with a weak tag", async () => {
  const body = [Buffer.alloc(3000, "a"), Buffer.alloc(3000, "b")];
  const headers = { "Content-Type": "text/plain", ETag: '"1"' };
  let isSent = false;
  const onSent = (): void => {
    isSent = true;
  };
  const plain: ServerAnswer = { status: 200, headers, body, mayCompress: true, onSent };
  const packed = await whole(exchangeOf("GET", { "accept-encoding": "gzip" }), plain);
  expect(packed.headers).toMatchObject({ ETag: 'W/"1"', "Content-Encoding": "gzip" });
  expect(packed.headers["Vary"]).toBe("Origin, Accept-Encoding");
  expect(gunzipSync(packed.body as Uint8Array).equals(Buffer.concat(body))).toBe(true);
  expect(isSent).toBe(true);
  const same = await whole(exchangeOf("GET"), plain);
  expect(same.body).toBe(body);
  expect(same.headers).toMatchObject({ ETag: '"1"', Vary: "Origin, Accept-Encoding" });
});

test("an error that names a code of another version is a fault, and not an answer by itself", () => {
  const foreign = Object.assign(new Error("secret"), { name: "HapaxError", code: "of_the_future" });
  const nameless = Object.assign(new Error("secret"), { name: "HapaxError" });
  for (const error of [foreign, nameless]) {
    expect(isRefusal(error)).toBe(false);
    const answer = failureAnswer(error);
    expect(answer.status).toBe(500);
    expect(new TextDecoder().decode(answer.body as Uint8Array)).not.toContain("secret");
  }
  expect(isRefusal(new HapaxError("not_found", "x"))).toBe(true);
});
