// The door of streams in objects, in a real workerd: one object for each stream however its path is spelled, and the same locks as everywhere.
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { createFetchServer, type FetchServer } from "../../src/streams/runtimes/fetch.ts";
import { requirePart } from "../client/runtimes-kit.ts";
import { type ObjectsHost, startObjects, whyNoWorkerd } from "../kits/workerd-objects.ts";
import { DOOR_OPTIONS } from "./fixtures/door-options.ts";

const why = whyNoWorkerd();
let host: ObjectsHost;
let plain: FetchServer;

beforeAll(async () => {
  if (why !== undefined) return;
  const source = new URL("fixtures/door-worker.ts", import.meta.url);
  host = await startObjects({ source, classes: ["Guarded"] });
  plain = createFetchServer({
    ...DOOR_OPTIONS,
    store: "memory",
    authorize: () => ({ refused: "missing" }),
  });
}, 60_000);

afterAll(async () => {
  if (why !== undefined) return;
  await host.stop();
  await plain.stop();
});

if (why !== undefined) {
  test("the door of streams in objects", (context) => {
    requirePart(context, undefined, why);
  });
}

const HOUR_MS = 3_600_000;

/** The headers of a caller who may do everything below its own name, for so long. */
function as(name: string, forMs = HOUR_MS): Record<string, string> {
  const credential = `Bearer ${encodeURIComponent(name)} ${Date.now() + forMs}`;
  return { Authorization: credential, "Content-Type": "text/plain" };
}

const send = (path: string, init: RequestInit = {}): Promise<Response> =>
  fetch(host.url + path, init);

describe.runIf(why === undefined)("the door of streams in objects", () => {
  test("G72 every spelling of a path leads to the one object of its stream", async () => {
    const headers = as("ann@home é");
    const paths = ["ann@home%20%C3%A9", "ann%40home%20%C3%A9", "%61nn@home%20%c3%a9"];
    const [first = "", ...others] = paths.map((name) => `/v1/stream/${name}/s`);
    expect((await send(first, { method: "PUT", headers, body: "once" })).status).toBe(201);
    for (const path of others) {
      expect((await send(path, { method: "PUT", headers })).status, path).toBe(200);
      expect(await (await send(path, { headers })).text()).toBe("once");
      // Also where the caller names another object.
      expect(await (await send(`${path}?object=other`, { headers })).text()).toBe("once");
    }
  });

  test("G72 a stream outside of /v1/stream is in the object of its path, also if its caller names another one", async () => {
    const headers = as("x");
    // The identity is confined to its namespace, so what tells the objects apart is how often each has lived.
    const path = "/a/b/cat/s";
    const lives = (): Promise<unknown> => host.object("Guarded", "other").json("/_probe/life");
    const before = await lives();
    await host.object("Guarded", "other").evict();
    expect((await send(`${path}?object=other`, { headers })).status).toBeGreaterThanOrEqual(400);
    expect(await lives()).toMatchObject({ life: (before as { life: number }).life + 2 });
  });

  test("G72 a header of ours that a client sends changes nothing", async () => {
    const init = { method: "PUT", headers: { ...as("bob"), "Hapax-Bridge": "1" }, body: "whole" };
    expect((await send("/v1/stream/bob/s", init)).status).toBe(201);
    expect(await (await send("/v1/stream/bob/s", { headers: as("bob") })).text()).toBe("whole");
  });

  test("a request without a credential, of a foreign page or for another tenant is answered as everywhere", async () => {
    const seen = async (answer: Response): Promise<unknown> => {
      const headers = Object.fromEntries(answer.headers);
      for (const name of [
        "x-request-id",
        "date",
        "content-length",
        "transfer-encoding",
        "server",
        "connection",
      ])
        delete headers[name];
      return [answer.status, headers, await answer.text()];
    };
    const origins = ["https://app.example", "https://evil.example", "null"];
    const requests = origins.flatMap((origin): [string, RequestInit][] => [
      ["/v1/stream/eve/s", { method: "PUT", headers: { Origin: origin } }],
      ["/v1/stream/eve/s?offset=-1&live=sse", { headers: { Origin: origin } }],
      [
        "/v1/stream/eve/s",
        { method: "OPTIONS", headers: { Origin: origin, "Access-Control-Request-Method": "PUT" } },
      ],
    ]);
    requests.push(["/_hapax/streams?object=eve", {}], ["/v1/stream/eve/s", { method: "HEAD" }]);
    for (const [path, init] of requests) {
      const here = await plain.fetch(new Request(`http://127.0.0.1${path}`, init));
      expect(await seen(await send(path, init)), `${path} ${JSON.stringify(init)}`).toEqual(
        await seen(here),
      );
    }
    const other = await send("/v1/stream/eve/s", { headers: as("mallory") });
    const missing = await send("/v1/stream/eve/none", { headers: as("mallory") });
    expect([other.status, missing.status]).toEqual([403, 403]);
  });

  test("what the door refuses itself has the headers of every answer", async () => {
    const refused = await send("/v1");
    expect(refused.status).toBe(400);
    for (const name of ["x-content-type-options", "cross-origin-resource-policy"])
      expect(refused.headers.get(name), name).not.toBeNull();
  });

  test("G72 a live reader ends with its identity, also while its object sleeps", async () => {
    const path = "/v1/stream/carl/s";
    await send(path, { method: "PUT", headers: as("carl") });
    const begunMs = performance.now();
    const answer = await send(`${path}?offset=-1&live=sse`, { headers: as("carl", 2_500) });
    expect(answer.status).toBe(200);
    await host.object("Guarded", "carl").evict();
    await answer.text();
    expect(performance.now() - begunMs).toBeGreaterThan(2_000);
    expect(performance.now() - begunMs).toBeLessThan(20_000);
    await vi.waitFor(async () => {
      const { sockets } = await host.object("Guarded", "carl").json<Life>("/_probe/life");
      expect(sockets).toBe(0);
    });
    expect((await send(path, { headers: as("carl", -1) })).status).toBe(401);
  });
});

interface Life {
  readonly life: number;
  readonly sockets: number;
}
