// What objects are made of, and which streams are theirs, in a real workerd. PROTOCOL.md §12.14, GUARANTEES.md G72.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { requirePart } from "../client/runtimes-kit.ts";
import { whyNoWorkerd } from "../kits/workerd-objects.ts";
import { create, readWhole, type Stage, startStage } from "./streams-stage.ts";

const why = whyNoWorkerd();
const JSON_TYPE = { "Content-Type": "application/json" };
let stage: Stage;

beforeAll(async () => {
  if (why === undefined) stage = await startStage();
}, 60_000);

afterAll(async () => {
  if (why === undefined) await stage.stop();
});

if (why !== undefined) {
  test("parts of objects", (context) => {
    requirePart(context, undefined, why);
  });
}

const send = (path: string, init: RequestInit = {}): Promise<Response> =>
  fetch(stage.host.url + path, init);

async function codeOf(answer: Response): Promise<readonly [number, unknown]> {
  const text = await answer.text();
  return [answer.status, text === "" ? "" : (JSON.parse(text) as { code?: string }).code];
}

let keys = 0;

function transact(target: string, operations: readonly object[]): Promise<Response> {
  const headers = { ...JSON_TYPE, "Idempotency-Key": `key-${(keys += 1)}` };
  const body = JSON.stringify({ operations });
  return send(`/_hapax/transactions${target}`, { method: "POST", headers, body });
}

const creating = (stream: string): object => ({
  create: { stream, contentType: "text/plain" },
});

describe.runIf(why === undefined)("streams of another object", () => {
  test("G72 a transaction creates no stream where no path leads", async () => {
    const stream = "/v1/stream/@home/lost";
    const refused = await transact("?object=other", [creating(stream)]);
    expect(await codeOf(refused)).toEqual([400, "invalid_request"]);
    const listed = await (await send("/_hapax/streams?object=other")).json();
    expect(listed).toEqual({ streams: [] });
    // In the object of its path, and in any object if the path belongs to none.
    expect((await transact("?object=home", [creating(stream)])).status).toBe(200);
    expect((await send(stream)).status).toBe(200);
    expect((await transact("?object=other", [creating("/none/s")])).status).toBe(200);
  });

  test("G72 a client names its object by ?object= alone", async () => {
    const headers = { ...JSON_TYPE, "Idempotency-Key": "forged", "Hapax-Object": "home" };
    const body = JSON.stringify({ operations: [creating("/v1/stream/@home/forged")] });
    const init = { method: "POST", headers, body };
    const refused = await send("/_hapax/transactions?object=other", init);
    expect(await codeOf(refused)).toEqual([400, "invalid_request"]);
  });
});

describe.runIf(why === undefined)("an object without parts", () => {
  test("§12.14 refuses by name what it was made without, and has transactions, groups and forks", async () => {
    const { host } = stage;
    await create(stage.url("early", "s"));
    const path = "/v1/stream/__ds/subscriptions/one?object=early";
    const streams = ["/v1/stream/@early/s"];
    const wake = { type: "pull-wake", streams, wake_stream: "/v1/stream/@early/wakes" };
    await create(stage.url("early", "wakes"));
    const body = JSON.stringify(wake);
    const subscribed = await send(path, { method: "PUT", headers: JSON_TYPE, body });
    expect(subscribed.status, await subscribed.text()).toBe(201);
    await stage.object("early").json("/_probe/parts");
    await host.evictAll();
    // Its wakes would never come: it says so, instead of taking appends.
    const kept = await send("/v1/stream/@early/s", { method: "POST", body: "x" });
    expect(await kept.text()).toContain("`subscriptions`");
    expect(kept.status).toBe(501);

    const missing = [
      "/v1/stream/__ds/subscriptions/one",
      "/_hapax/openapi.json",
      "/_hapax/metrics",
      "/metrics",
      "/_hapax/stream",
      "/_hapax/keys",
      "/_hapax/subscriptions",
      "/_hapax/tokens",
      "/_hapax/cluster",
    ];
    for (const one of missing) {
      const answer = await send(`${one}?object=bare`, { method: "GET" });
      expect(await codeOf(answer), one).toEqual([501, "unsupported"]);
    }
    const page = await send("/_hapax/ui/?object=bare");
    expect(await codeOf(page)).toEqual([404, "not_found"]);
    const acked = await transact("?object=bare", [
      { ack: { subscription: "s", token: "t", wakeId: "w", generation: 1 } },
    ]);
    expect(acked.status, await acked.text()).toBe(501);

    const at = (name: string): string => `/v1/stream/@bare/${name}`;
    const made = await transact("?object=bare", [
      creating(at("a")),
      { append: { stream: at("a"), text: "whole" } },
    ]);
    expect(made.status, await made.text()).toBe(200);
    await create(host.url + at("fork"), { "Stream-Forked-From": at("a") });
    expect(await readWhole(host.url + at("fork"))).toBe("whole");
    const group = await send("/_hapax/groups/g?object=bare", {
      method: "PUT",
      headers: JSON_TYPE,
      body: JSON.stringify({ streams: [at("a")] }),
    });
    expect(group.status, await group.text()).toBe(201);
  }, 60_000);
});
