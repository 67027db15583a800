// What objects are made of, and which streams are theirs, in a real workerd. PROTOCOL.md §12.14, GUARANTEES.md G72.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { requirePart } from "../client/runtimes-kit.ts";
import { whyNoWorkerd } from "../kits/workerd-objects.ts";
import { append, create, LiveReader, readWhole, type Stage, startStage } from "./streams-stage.ts";

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

/** From now on, lives of objects begin with these parts. */
async function deploy(...parts: readonly string[]): Promise<void> {
  const query = parts.map((part) => `part=${part}`).join("&");
  await stage.object("any").json(`/_probe/parts?${query}`);
  await stage.host.evictAll();
}

const put = (path: string, body: unknown): Promise<Response> =>
  send(path, { method: "PUT", headers: JSON_TYPE, body: JSON.stringify(body) });

describe.runIf(why === undefined)("an object without parts", () => {
  test("§12.14 refuses by name what it was made without", async () => {
    await deploy();
    const missing: readonly (readonly [part: string, path: string])[] = [
      ["subscriptions", "/v1/stream/__ds/subscriptions/one"],
      ["description", "/_hapax/openapi.json"],
      ["observation", "/_hapax/metrics"],
      ["observation", "/metrics"],
      ["observation", "/_hapax/stream"],
      ["observation", "/_hapax/keys"],
      ["observation", "/_hapax/subscriptions"],
      ["observation", "/_hapax/tokens"],
      ["observation", "/_hapax/cluster"],
      ["followAll", "/_hapax/follow"],
      ["groups", "/_hapax/groups"],
      ["groups", "/_hapax/groups/g/take"],
      ["retention", "/_hapax/trim"],
      ["retention", "/_hapax/retention"],
      ["transactions", "/_hapax/transactions"],
      ["transactions", "/_hapax/transactions/producers/p"],
    ];
    for (const [part, path] of missing) {
      for (const method of ["GET", "POST"]) {
        const answer = await send(`${path}?object=bare`, { method });
        const text = await answer.text();
        expect([answer.status, text.includes(`\`${part}\``)], path).toEqual([501, true]);
      }
    }
    const page = await send("/_hapax/ui/?object=bare");
    expect(await codeOf(page)).toEqual([404, "not_found"]);
    // Headers that ask for what a missing part does.
    const at = "/v1/stream/@bare/s";
    const ruled = { "Content-Type": "text/plain", "Stream-Retention": "seconds=60" };
    const kept = await send(at, { method: "PUT", headers: ruled });
    expect([kept.status, (await kept.text()).includes("`retention`")]).toEqual([501, true]);
    await create(stage.host.url + at);
    const keyed = await send(at, { method: "DELETE", headers: { "Idempotency-Key": "once" } });
    expect([keyed.status, (await keyed.text()).includes("`transactions`")]).toEqual([501, true]);
    const packed = { "Content-Type": "text/plain", "Content-Encoding": "gzip" };
    const coded = await send(at, { method: "POST", headers: packed, body: "x" });
    expect(await codeOf(coded)).toEqual([415, "unsupported_encoding"]);
    expect(await readWhole(stage.host.url + at)).toBe("");
  });

  test("§12.14 has streams, forks, producers, keys and live readers", async () => {
    await deploy();
    const url = stage.url("bare", "whole");
    await create(url);
    for (const sequence of [0, 1, 1, 0]) await append(url, `<${sequence}>`, ["w", sequence]);
    const headers = { "Content-Type": "text/plain", "Idempotency-Key": "once" };
    for (let again = 0; again < 3; again += 1) {
      const answer = await fetch(url, { method: "POST", headers, body: "<key>" });
      expect([200, 204]).toContain(answer.status);
    }
    await stage.object("bare").evict();
    expect(await readWhole(url)).toBe("<0><1><key>");
    await create(stage.url("bare", "fork"), { "Stream-Forked-From": "/v1/stream/@bare/whole" });
    expect(await readWhole(stage.url("bare", "fork"))).toBe("<0><1><key>");
    const reader = new LiveReader(url);
    await reader.has("<0><1><key>".length);
    await stage.object("bare").evict();
    await append(url, "<2>", ["w", 2]);
    await reader.has("<0><1><key><2>".length);
    await reader.stop();
    const listed = await (await send("/_hapax/streams?object=bare")).json();
    expect(JSON.stringify(listed)).toContain("/v1/stream/@bare/whole");
  }, 60_000);

  test("G70 §12.14 opens nothing that needs a part which is not there, and has lost nothing when it is back", async () => {
    await deploy("subscriptions", "groups", "retention", "transactions");
    for (const name of ["sub", "group", "rule", "gone"]) await create(stage.url(name, "s"));
    const wake = { type: "pull-wake", streams: ["/v1/stream/@sub/s"] };
    await create(stage.url("sub", "wakes"));
    const subscribed = await put("/v1/stream/__ds/subscriptions/one?object=sub", {
      ...wake,
      wake_stream: "/v1/stream/@sub/wakes",
    });
    expect(subscribed.status, await subscribed.text()).toBe(201);
    const group = await put("/_hapax/groups/g?object=group", { streams: ["/v1/stream/@group/s"] });
    expect(group.status, await group.text()).toBe(201);
    const rule = await send("/_hapax/retention?object=rule&stream=/v1/stream/@rule/s", {
      method: "PUT",
      headers: { "Stream-Retention": "bytes=1000" },
    });
    expect(rule.status, await rule.text()).toBeLessThan(300);
    // What is deleted holds nothing up.
    const other = { streams: ["/v1/stream/@gone/s"] };
    expect((await put("/_hapax/groups/g?object=gone", other)).status).toBe(201);
    const away = await send("/_hapax/groups/g?object=gone", { method: "DELETE" });
    expect(away.status, await away.text()).toBeLessThan(300);

    await deploy();
    const needs = { sub: "subscriptions", group: "groups", rule: "retention" };
    for (const [name, part] of Object.entries(needs)) {
      const answer = await send(`/v1/stream/@${name}/s`, { method: "POST", body: "x" });
      const text = await answer.text();
      expect([answer.status, text.includes(`\`${part}\``)], text).toEqual([501, true]);
    }
    expect(await append(stage.url("gone", "s"), "x", ["w", 0])).toBe(200);

    await deploy("subscriptions", "groups", "retention", "transactions");
    for (const name of ["sub", "group", "rule", "gone"])
      expect(await append(stage.url(name, "s"), "y", ["w", 1 - Number(name !== "gone")])).toBe(200);
    expect((await send("/_hapax/groups/g?object=group")).status).toBe(200);
    expect((await send("/_hapax/groups/g?object=gone")).status).toBe(404);
    const again = await send("/v1/stream/__ds/subscriptions/one?object=sub");
    expect(again.status, await again.text()).toBe(200);
  }, 60_000);

  test("§12.14 a transaction needs the parts of its operations", async () => {
    await deploy("transactions");
    const at = (name: string): string => `/v1/stream/@half/${name}`;
    const made = await transact("?object=half", [
      creating(at("a")),
      { append: { stream: at("a"), text: "whole" } },
    ]);
    expect(made.status, await made.text()).toBe(200);
    expect(await readWhole(host(at("a")))).toBe("whole");
    const lease = { group: "g", member: "m", stream: at("a"), token: 1 };
    const acked = [{ ack: { subscription: "s", token: "t", wakeId: "w", generation: 1 } }];
    const offset = "0000000000000000_0000000000000005";
    const committed = [{ commit: { ...lease, offset } }];
    for (const [part, operations] of [
      ["subscriptions", acked],
      ["groups", committed],
    ] as const) {
      const refused = await transact("?object=half", operations);
      const text = await refused.text();
      expect([refused.status, text.includes(`\`${part}\``)], text).toEqual([501, true]);
    }
  }, 60_000);
});

const host = (path: string): string => stage.host.url + path;
