// PROTOCOL.md §21.1, §21.2, §21.3: every route and method, with every kind of credential, on every runtime.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { inspect } from "node:util";
import { afterAll, describe, expect, test, vi } from "vitest";
import { createFetchServer, fetchCourier } from "../../src/streams/runtimes/fetch.ts";
import { type NodeServerOptions, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { describeRoutes } from "../../src/streams/server/open-api.ts";
import { RESERVED_ROUTES, STREAM_ROUTE } from "../../src/streams/server/routes.ts";
import { openMemoryStore } from "../../src/streams/stores/memory.ts";
import type { Store } from "../../src/streams/store.ts";
import type { StreamName } from "../../src/streams/core/types.ts";
import {
  type AsOwner,
  type Facts,
  type Names,
  type Receiver,
  type Sample,
  type SampleRequest,
  SAMPLES,
} from "../kits/access-samples.ts";
import { type Caller, callerAt, expectedOf, HOME, openDoor } from "../kits/access-callers.ts";
import { type Http2Client, openHttp2 } from "../kits/http2-fetch.ts";
import { Description, type OpenApi } from "../kits/described.ts";
import type { Certificate } from "../kits/certificates.ts";
import { openTlsStage } from "../kits/tls-server.ts";

vi.setConfig({ maxConcurrency: 8 });

const ROUTES = [...RESERVED_ROUTES, STREAM_ROUTE];
const description = new Description(describeRoutes(ROUTES) as unknown as OpenApi);
const METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE"];

const closing: (() => unknown)[] = [];
afterAll(async () => {
  for (const close of closing.toReversed()) await close();
});

const door = openDoor(Math.floor(Date.now() / 1000));
closing.push(() => {
  door.close();
});

interface Runtime {
  readonly name: string;
  readonly url: string;
  readonly fetch: typeof globalThis.fetch;
  /** Calls on a connection whose certificate has this name. Undefined: the runtime asks for none. */
  readonly fetchWith?: (certificate: string) => typeof globalThis.fetch;
  readonly store: Store;
}

async function open(name: string, more: Partial<NodeServerOptions>): Promise<Runtime> {
  const store = openMemoryStore();
  const server = await startNodeServer({
    store,
    port: 0,
    authorize: door.authorize,
    // Many hundred requests at once, on a machine that may be slow.
    authorizeTimeoutMs: 30_000,
    onAudit: () => undefined,
    ...more,
  });
  closing.push(() => server.stop());
  return { name, url: server.url, fetch: globalThis.fetch, store };
}

/** The name in a certificate that no key names. */
const UNKNOWN = "unknown";

async function openOverTls(): Promise<Runtime> {
  const stage = openTlsStage();
  const { certFile, keyFile, authority } = stage;
  closing.push(() => stage.close());
  const clientCaFile = stage.write("ca.pem", authority.cert);
  const runtime = await open("HTTP/2", { tls: { certFile, keyFile, clientCaFile } });
  const clients = new Map<string, Http2Client>();
  const certificates = new Map<string, Certificate>();
  closing.push(() => {
    for (const client of clients.values()) client.close();
  });
  const clientOf = (name: string): Http2Client => {
    const open = clients.get(name);
    // The server has ended connections that were idle while the other runtimes had their turn.
    if (open?.sessions.every(({ closed }) => !closed) === true) return open;
    const own = certificates.get(name) ?? authority.issue({ name });
    certificates.set(name, own);
    const client = openHttp2(runtime.url, authority.cert, name === UNKNOWN ? 4 : 1, own);
    clients.set(name, client);
    return client;
  };
  const fetchWith =
    (name: string): typeof globalThis.fetch =>
    (input, init) =>
      clientOf(name)
        .fetch(input, init)
        .catch((error: unknown) => {
          // A connection that ends as the request comes does not look at it, and says so.
          if (!String(error).includes("NGHTTP2_REFUSED_STREAM")) throw error;
          return clientOf(name).fetch(input, init);
        });
  // The server asks every client for a certificate. One that no key names is no credential.
  return { ...runtime, fetch: fetchWith(UNKNOWN), fetchWith };
}

/** As a platform calls it: with a request, and no socket. */
function openOnFetch(): Runtime {
  const store = openMemoryStore();
  const url = "https://streams.example";
  const server = createFetchServer({
    store,
    publicUrl: url,
    authorize: door.authorize,
    authorizeTimeoutMs: 30_000,
    allowLoopbackWebhooks: true,
    courier: fetchCourier(),
    onAudit: () => undefined,
  });
  closing.push(() => server.stop());
  const fetch: typeof globalThis.fetch = (input, init) => server.fetch(new Request(input, init));
  return { name: "fetch", url, fetch, store };
}

const runtimes = [
  await open("the fast lane", { hasFastLane: true }),
  await open("node:http", { hasFastLane: false }),
  await openOverTls(),
  openOnFetch(),
];

const receiver = await openReceiver();

async function openReceiver(): Promise<Receiver> {
  const waiting = new Map<string, (wake: Facts) => void>();
  const server = createServer((request, response) => {
    let text = "";
    request.on("data", (piece: Buffer) => (text += piece.toString()));
    request.on("end", () => {
      const wake = JSON.parse(text) as Facts;
      waiting.get(String(wake["subscription_id"]))?.(wake);
      response.end("{}");
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closing.push(() => server.close());
  // A TCP server has such an address.
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/`,
    wakeOf: (subscription) =>
      new Promise((resolve) => {
        waiting.set(subscription, resolve);
      }),
  };
}

// A key that was a good one until now.
for (const runtime of runtimes) {
  const request = { target: "/_hapax/streams" };
  const { status } = await send(runtime, "GET", request, door.revoked);
  if (status !== 200) throw new Error(`the key to revoke is refused: ${status}`);
}
door.revoke();

interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
}

async function send(
  { url, fetch }: Runtime,
  method: string,
  { target, headers = {}, body }: SampleRequest,
  authorization?: string,
): Promise<Answer> {
  const response = await fetch(`${url}${target}`, {
    method,
    // A redirect is an answer.
    redirect: "manual",
    headers: { ...headers, ...(authorization === undefined ? {} : { authorization }) },
    ...(body === undefined ? {} : { body }),
  });
  const text = await response.text();
  const contentType = response.headers.get("content-type") ?? undefined;
  const path = target.split("?")[0] ?? "";
  const { status } = response;
  expect(description.problemOf({ method, path, status, contentType, text })).toBeUndefined();
  return { status: response.status, headers: Object.fromEntries(response.headers), text };
}

function asOwner(runtime: Runtime): AsOwner {
  return async (method, request) => {
    const answer = await send(runtime, method, request, door.owner);
    expect(answer.status, `${method} ${request.target}: ${answer.text}`).toBeLessThan(300);
    return answer.text === "" ? {} : (JSON.parse(answer.text) as Facts);
  };
}

let cases = 0;

function freshNames(): Names {
  const mark = `case-${(cases += 1)}-`;
  const stream = `${HOME}/${mark}`;
  return {
    mark,
    stream,
    wakes: `${stream}/wakes`,
    group: `g-${mark}`,
    subscription: `s-${mark}`,
    producer: `p-${mark}`,
    key: `k-${mark}`,
  };
}

/** Everything that the server keeps under the names. */
function stateOf({ store }: Runtime, { stream, group, subscription, wakes }: Names): string {
  const { streams, groups, subscriptions } = store.world;
  const paths = [stream, `${stream}-new`, wakes].map((name) => streams.get(name as StreamName));
  const found = subscriptions.byId.get(subscription);
  // What becomes of a delivery is not the work of the request.
  const isDelivered = found?.settings.way.kind === "webhook";
  const followed = isDelivered ? [found.settings, found.links] : [found];
  return inspect([paths, groups.byId.get(group), followed], { depth: 6 });
}

function codeOf({ text, headers }: Answer): unknown {
  if (headers["content-type"] !== "application/problem+json" || text === "") return undefined;
  return (JSON.parse(text) as Facts)["code"];
}

/** An answer without what differs between any two answers. */
function comparable({ status, headers, text }: Answer): Answer {
  const { date: _date, "x-request-id": _id, ...rest } = headers;
  return { status, headers: rest, text };
}

/** The sample as the caller sends it. */
async function sendAs(
  runtime: Runtime,
  caller: Caller,
  method: string,
  request: SampleRequest,
): Promise<Answer> {
  const target = await door.sign(caller, request.target);
  const { certificate, authorization } = caller;
  const fetch = certificate === undefined ? undefined : runtime.fetchWith?.(certificate);
  const by = fetch === undefined ? runtime : { ...runtime, fetch };
  return send(by, method, { ...request, target }, authorization);
}

async function checkCase(
  runtime: Runtime,
  method: string,
  sample: Sample,
  caller: Caller,
): Promise<void> {
  const names = freshNames();
  const facts = (await sample.prepare?.(names, asOwner(runtime), receiver)) ?? {};
  const { outcome, missing, isRight } = expectedOf(sample, caller);
  const [status, code] = outcome;
  const before = isRight ? "" : stateOf(runtime, names);
  const answer = await sendAs(runtime, caller, method, sample.request(names, facts));
  const got = { caller: caller.name, status: answer.status, code: codeOf(answer) };
  const isHead = method === "HEAD";
  expect(got, answer.text).toEqual({
    caller: caller.name,
    status,
    code: isHead ? undefined : code,
  });
  if (isRight) return;
  expect(stateOf(runtime, names), caller.name).toBe(before);
  expect(answer.text, caller.name).not.toContain(names.mark);
  if (status === 401) expect(answer.headers["www-authenticate"]).toMatch(/^Bearer realm="hapax"/);
  if (status === 403 && !isHead) checkForbidden(answer, missing);
  // The same answer as about names that nothing has.
  const absent = freshNames();
  const other = await sendAs(runtime, caller, method, sample.request(absent, {}));
  expect(comparable(other), caller.name).toEqual(comparable(answer));
}

/** A 403 names the action, and says nothing else. */
function checkForbidden({ text }: Answer, missing: string | undefined): void {
  const { error, ...problem } = JSON.parse(text) as Facts;
  const detail = `no grant allows it: action=${String(missing)}`;
  expect(problem).toEqual({
    type: "urn:hapax:error:not_allowed",
    title: "The credential does not allow this",
    status: 403,
    code: "not_allowed",
    detail,
    help: expect.any(String) as string,
  });
  if (error !== undefined) expect(error).toEqual({ code: "NOT_ALLOWED", message: detail });
}

test("every route and method of the table has a sample, and every sample a route", () => {
  const declared = ROUTES.map(({ path, methods }) => [path, Object.keys(methods).toSorted()]);
  const sampled = Object.entries(SAMPLES).map(([path, samples]) => [
    path,
    [...new Set(Object.keys(samples).map(methodOf))].toSorted(),
  ]);
  expect(Object.fromEntries(sampled)).toEqual(Object.fromEntries(declared));
  expect(declared.length).toBe(Object.keys(SAMPLES).length);
});

/** Variants of an operation have words behind their method. */
function methodOf(key: string): string {
  return key.split(" ")[0] ?? "";
}

describe.each(runtimes)("access on $name", (runtime) => {
  const callers = door.callers.filter(
    ({ certificate }) => certificate === undefined || runtime.fetchWith !== undefined,
  );
  const operations = Object.entries(SAMPLES).flatMap(([path, samples]) =>
    Object.entries(samples).map(([key, sample]) => ({ path, key, sample })),
  );
  for (const { path, key, sample } of operations) {
    test.concurrent(`G40 ${key} ${path} answers every credential as its grants say`, async () => {
      const method = methodOf(key);
      await Promise.all(
        callers.map((caller) => checkCase(runtime, method, sample, callerAt(caller, path, method))),
      );
    });
  }

  const byToken = operations.filter(({ sample }) => sample.needs === "token");
  for (const { path, key, sample } of byToken) {
    test.concurrent(`${key} ${path} takes its own token, and that of no other`, async () => {
      const [names, others] = [freshNames(), freshNames()];
      const facts = (await sample.prepare?.(names, asOwner(runtime), receiver)) ?? {};
      const foreign = (await sample.prepare?.(others, asOwner(runtime), receiver)) ?? {};
      const request = sample.request(names, facts);
      const wrong = await send(runtime, key, request, `Bearer ${String(foreign["token"])}`);
      expect([wrong.status, codeOf(wrong)]).toEqual([401, "token_invalid"]);
      const right = await send(runtime, key, request, `Bearer ${String(facts["token"])}`);
      expect([right.status, codeOf(right)]).toEqual(sample.right.concat(undefined).slice(0, 2));
    });
  }

  test("a method that a path does not take is refused for everybody alike", async () => {
    for (const { path, methods } of ROUTES) {
      const [sample] = Object.values(SAMPLES[path] ?? {});
      const target = sample?.request(freshNames(), {}).target ?? path;
      for (const method of [...METHODS, "PATCH"].filter((one) => !(one in methods))) {
        const answers = await Promise.all(
          [undefined, door.stranger, door.owner].map((authorization) =>
            send(runtime, method, { target }, authorization),
          ),
        );
        for (const answer of answers) {
          expect([method, path, answer.status]).toEqual([method, path, 405]);
          expect(comparable(answer)).toEqual(comparable(answers[0] ?? answer));
        }
      }
    }
  });

  test("a preflight needs no credential, and tells nothing", async () => {
    const names = freshNames();
    await asOwner(runtime)("PUT", { target: names.stream });
    const there = await send(runtime, "OPTIONS", { target: names.stream });
    const missing = await send(runtime, "OPTIONS", { target: freshNames().stream });
    expect(there.status).toBe(204);
    expect(comparable(there)).toEqual(comparable(missing));
  });
});
