import { describe, expect, test } from "vitest";
import { HapaxError } from "../../base/errors.ts";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import { openFaultyStore } from "../../../test/kits/faulty-store.ts";
import { exchangeOf } from "../../../test/kits/server-stage.ts";
import { type Cluster, type ShardOwner, type ShardHost, soleOwner } from "../cluster.ts";
import { type ShardId, shardOfPlacement } from "../core/placement.ts";
import type { Authorize, Grant, Identity } from "../access/identity.ts";
import type { ServerAnswer } from "../server/exchange.ts";
import { createSigner, deriveSigningKey, issueToken } from "../signer.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { createClusterServer } from "./cluster-server.ts";
import { wholeBodyOf } from "./gather.ts";
import type { PeerOutcome, PeerRequest } from "./peers.ts";

const TEXT = { "content-type": "text/plain" };
const OTHER: ShardOwner = { node: "n2", url: "http://n2", peer: "n2:1", isSelf: false };
const text = (answer: ServerAnswer): string => new TextDecoder().decode(wholeBodyOf(answer));

/** A node that owns shards 0 and 1 of four, in a cluster whose rows a test writes. */
function openNode(shards = 4, authorize?: Authorize) {
  const clock = createVirtualClock(Date.UTC(2026, 0, 1));
  const owners = new Map<number, ShardOwner | undefined>();
  const outcomes: (PeerOutcome | "silent")[] = [];
  const sent: { readonly peer: string; readonly request: PeerRequest }[] = [];
  let host: ShardHost | undefined;
  let isValid = true;
  const base = soleOwner(openMemoryStore(), "n1");
  const secret = (): Promise<string> => Promise.resolve("a secret of the tests");
  let finds = 0;
  const cluster: Cluster = {
    ...base,
    names: {
      ...base.names,
      find(...name) {
        finds += 1;
        return base.names.find(...name);
      },
    },
    secret,
    shards,
    get isValid() {
      return isValid;
    },
    join(taken) {
      host = taken;
      for (const shard of [0, 1]) {
        owners.set(shard, { node: "n1", url: "http://n1", peer: "n1:1", isSelf: true });
        host.take(shard as ShardId, Object.assign(openMemoryStore(), { secret }));
      }
      return Promise.resolve();
    },
    ownerOf: (shard) => owners.get(shard),
    look: () => queueMicrotask(() => clock.advance(100)),
  };
  const server = createClusterServer({
    cluster,
    peers: {
      send(peer, request) {
        sent.push({ peer, request });
        const outcome = outcomes.shift();
        if (outcome !== "silent") return Promise.resolve(outcome ?? { kind: "unsent" });
        return new Promise((resolve) => {
          request.signal.addEventListener("abort", () => resolve({ kind: "lost" }));
        });
      },
      nudge: () => undefined,
    },
    emptyStore: openMemoryStore({ bytesMax: 0 }),
    clock,
    random: { unit: () => 0.5, id: () => "id" },
    courier: { deliver: () => Promise.resolve({ kind: "refused", reason: "none here" }) },
    authorize,
    address: "127.0.0.1",
    publicUrl: () => "http://test",
    onFault: () => undefined,
  });
  return {
    server,
    owners,
    outcomes,
    sent,
    clock,
    finds: () => finds,
    invalidate: () => (isValid = false),
    ask: (...request: Parameters<typeof exchangeOf>) => server.handle(exchangeOf(...request)),
  };
}

/** A stream whose shard is this one. */
function streamOn(shard: number, shards = 4): string {
  for (let at = 0; ; at += 1)
    if (shardOfPlacement(`s${at}`, shards) === shard) return `/v1/stream/s${at}`;
}

const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0));

const answered = (status: number): PeerOutcome => {
  return { kind: "answered", answer: { status, headers: { "Hapax-Owner": "http://n2" } } };
};

describe("a node of a cluster", () => {
  test("PROTOCOL.md §24.2: answers for its own shards, with the address of the owner", async () => {
    const { server, ask, sent } = openNode();
    await server.join();
    const path = streamOn(1);
    expect((await ask("PUT", path, TEXT, "a")).status).toBe(201);
    const append = await ask("POST", path, TEXT, "b");
    expect(append.headers["Hapax-Owner"]).toBe("http://n1");
    expect(text(await ask("GET", path))).toBe("ab");
    expect(sent).toEqual([]);
    await server.close();
  });

  test("PROTOCOL.md §24.2: a request for another shard goes to its owner with its head, and no further", async () => {
    const { server, ask, owners, outcomes, sent } = openNode();
    await server.join();
    owners.set(2, OTHER);
    outcomes.push(answered(204));
    const answer = await ask("POST", `${streamOn(2)}?x=1`, TEXT, "b");
    expect([answer.status, answer.headers["Hapax-Owner"]]).toEqual([204, "http://n2"]);
    expect(sent.map(({ peer, request }) => [peer, request.shard, request.target])).toEqual([
      ["n2:1", 2, `${streamOn(2)}?x=1`],
    ]);
    // What came from another node is never sent on.
    const moved = await server.handlePeer(2 as ShardId, exchangeOf("GET", streamOn(2)));
    expect([moved, sent.length]).toEqual(["moved", 1]);
    await server.close();
  });

  test.each([
    ["without an identity", {}, 1, 503],
    ["with a key", { "idempotency-key": '"k"' }, 2, 204],
    ["with a number", { "producer-id": "p", "producer-epoch": "0", "producer-seq": "0" }, 2, 204],
  ])("FW1 G92 an append %s whose owner was lost", async (_how, identity, times, status) => {
    const { server, ask, owners, outcomes, sent } = openNode();
    await server.join();
    owners.set(2, OTHER);
    outcomes.push({ kind: "lost" }, answered(204));
    const answer = await ask("POST", streamOn(2), { ...TEXT, ...identity }, "b");
    expect([sent.length, answer.status]).toEqual([times, status]);
    if (status === 503) expect(text(answer)).toContain("shard_moved");
    await server.close();
  });

  test("FW1 FW3 what no owner has done waits for the next owner, and not without end", async () => {
    const { server, ask, owners, outcomes, sent } = openNode();
    await server.join();
    owners.set(2, OTHER);
    outcomes.push({ kind: "moved" }, { kind: "unsent" }, answered(204));
    expect((await ask("POST", streamOn(2), TEXT, "b")).status).toBe(204);
    expect(sent).toHaveLength(3);
    owners.set(2, undefined);
    const answer = await ask("POST", streamOn(2), TEXT, "b");
    expect([answer.status, answer.headers["Retry-After"]]).toEqual([503, "1"]);
    expect(text(answer)).toContain("owner_unknown");
    expect(sent).toHaveLength(3);
    await server.close();
  });

  test("FW4 an owner that takes a request and never answers is waited for as long as a long-poll, and little longer", async () => {
    const { server, ask, owners, outcomes, clock } = openNode();
    await server.join();
    owners.set(2, OTHER);
    outcomes.push("silent", answered(200));
    let status = 0;
    const asked = ask("GET", streamOn(2)).then((answer) => (status = answer.status));
    await settled();
    clock.advance(server.options.longPollMs);
    await settled();
    expect(status).toBe(0);
    clock.advance(60_000);
    await asked;
    expect(status).toBe(503);
    await server.close();
  }, 2000);

  test("CL1 G93 a node whose lease is over answers for nothing that it owned", async () => {
    const { server, ask, invalidate } = openNode();
    await server.join();
    await ask("PUT", streamOn(1), TEXT, "a");
    invalidate();
    const answer = await ask("GET", streamOn(1));
    expect([answer.status, text(answer).includes("owner_unknown")]).toEqual([503, true]);
    await server.close();
  });

  test("CL2 a shard that is given up takes no new request, and closes its store", async () => {
    const store = openMemoryStore();
    const { server, ask } = openNode();
    await server.join();
    const host = server as unknown as ShardHost;
    host.take(1 as ShardId, store);
    expect((await ask("PUT", streamOn(1), TEXT, "a")).status).toBe(201);
    await host.giveUp(1 as ShardId);
    await expect(store.commit([])).rejects.toThrow(/closed/);
    expect((await ask("GET", streamOn(1))).status).toBe(503);
    await server.close();
  });

  test("CL2 FW3 a body that comes slowly does not hold a move up for as long as others wait", async () => {
    const node = openNode();
    const { server, ask, owners, outcomes, clock } = node;
    await server.join();
    await ask("PUT", streamOn(1), TEXT, "a");
    ask("POST", streamOn(1), TEXT, new Promise<string>(() => undefined)).catch(() => undefined);
    await settled();
    const moved = (server as unknown as ShardHost).giveUp(1 as ShardId).then(() => {
      owners.set(1, OTHER);
      outcomes.push(answered(200));
    });
    owners.set(1, undefined);
    let status = 0;
    const waiting = ask("GET", streamOn(1)).then((answer) => (status = answer.status));
    for (let at = 0; at < 60 && status === 0; at += 1) {
      clock.advance(100);
      await settled();
    }
    await Promise.all([moved, waiting]);
    expect(status).toBe(200);
    await server.close();
  });
});

describe("PROTOCOL.md §24.5: the health of a node", () => {
  const health = async ({ ask }: ReturnType<typeof openNode>): Promise<readonly unknown[]> => {
    const answer = await ask("GET", "/readyz");
    const { ready, writes, code } = JSON.parse(text(answer)) as Record<string, unknown>;
    return [answer.status, ready, writes, code];
  };

  test.each([
    ["stopped", () => openFaultyStore(openMemoryStore(), { failCommit: 1 }), "writes_stopped"],
    ["full", () => openMemoryStore({ bytesMax: 2 }), "store_full"],
  ])("a node with a shard that is %s is not ready", async (writes, openStore, code) => {
    const node = openNode();
    await node.server.join();
    expect(await health(node)).toEqual([200, true, "open", undefined]);
    (node.server as unknown as ShardHost).take(1 as ShardId, openStore());
    await node.ask("PUT", streamOn(1), TEXT, "12");
    expect(await health(node)).toEqual([503, false, writes, code]);
    await node.server.close();
  });

  test("a shard that another node has taken over is not of this one's health", async () => {
    const node = openNode();
    await node.server.join();
    const moved = new HapaxError("shard_moved", "in this test");
    const store = Object.assign(openMemoryStore(), { commit: () => Promise.reject(moved) });
    (node.server as unknown as ShardHost).take(1 as ShardId, store);
    await node.ask("PUT", streamOn(1), TEXT, "a");
    expect(await health(node)).toEqual([200, true, "open", undefined]);
    await node.server.close();
  });
});

test("PROTOCOL.md §24.4: the owners are shown to an identity of the whole server, and to no namespace", async () => {
  const sees: Grant = { actions: ["observe"] };
  const people: Readonly<Record<string, Identity>> = {
    operator: { name: "operator", grants: [sees] },
    tenant: { name: "tenant", namespace: "/v1/stream/acme", grants: [sees] },
    part: { name: "part", grants: [{ ...sees, streams: ["/v1/stream/a/**"] }] },
  };
  const { server, ask } = openNode(4, ({ header }) => {
    return people[header("x-name") ?? ""] ?? { refused: "missing" };
  });
  await server.join();
  const look = (name: string) => ask("GET", "/_hapax/cluster", { "x-name": name });
  const answer = await look("operator");
  expect(JSON.parse(text(answer))).toEqual({
    node: "n1",
    nodes: [{ node: "n1", state: "alive" }],
    shards: [{ shard: 0, owner: "n1" }],
  });
  const refused = await Promise.all(["tenant", "part", "stranger"].map(look));
  expect(refused.map(({ status }) => status)).toEqual([403, 403, 401]);
  await server.close();
});

describe("PROTOCOL.md §24.3: calls about several streams", () => {
  const below = (path: string): string => path.slice("/v1/stream/".length);
  const json = { "content-type": "application/json" };
  const transaction = (...streams: readonly string[]): string => {
    const one = (stream: string) => ({ append: { stream, contentType: "text/plain", text: "x" } });
    return JSON.stringify({ operations: streams.map(one) });
  };

  test.each([
    ["a fork", "PUT", "/v1/stream/a/1", { ...TEXT, "stream-forked-from": "/v1/stream/b/1" }, ""],
    ["a group", "PUT", "/_hapax/groups/g", json, '{"streams":["/v1/stream/a","/v1/stream/b"]}'],
    ["a group of all", "PUT", "/_hapax/groups/g", json, '{"pattern":"/v1/stream/*"}'],
    [
      "a subscription",
      "PUT",
      "/v1/stream/__ds/subscriptions/s",
      json,
      '{"type":"pull-wake","pattern":"a/*","wake_stream":"w"}',
    ],
    [
      "a connection",
      "GET",
      "/_hapax/follow?stream=/v1/stream/a/1&offset=-1&stream=/v1/stream/b/1&offset=-1",
      {},
      "",
    ],
  ])(
    "%s over placements is refused by name, and nothing is done",
    async (_what, method, path, headers, body) => {
      const { server, ask, sent } = openNode();
      await server.join();
      const answer = await ask(method, path, headers, body);
      expect([answer.status, sent.length]).toEqual([400, 0]);
      expect(text(answer)).toContain("placement_mixed");
      await server.close();
    },
  );

  test.each([
    ["group", "/_hapax/groups/g", (stream: string) => ({ streams: [stream] }), ["consume", "read"]],
    [
      "subscription",
      "/v1/stream/__ds/subscriptions/s",
      (stream: string) => ({
        type: "webhook",
        streams: [below(stream)],
        webhook: { url: "https://receiver.example/" },
      }),
      ["subscribe", "read"],
    ],
    [
      "subscription that wakes by a stream",
      "/v1/stream/__ds/subscriptions/s",
      (stream: string) => ({
        type: "pull-wake",
        streams: [below(stream)],
        wake_stream: below(`${stream}-w`),
      }),
      ["subscribe", "read", "append"],
    ],
  ] as const)(
    "the name of a %s is bound to no placement by who may not follow its streams",
    async (_what, path, bodyOf, actions) => {
      const [own, foreign] = [`${streamOn(0)}/1`, `${streamOn(1)}/1`];
      const authorize: Authorize = (request) => {
        const isOther = request.header("authorization") === "Bearer other";
        const streams = isOther ? [own, `${own}-w`] : [foreign, `${foreign}-w`];
        return { name: isOther ? "other" : "one", grants: [{ actions, streams }] };
      };
      const node = openNode(4, authorize);
      await node.server.join();
      const put = async (who: string, stream: string): Promise<number> => {
        const headers = { ...json, authorization: `Bearer ${who}` };
        return (await node.ask("PUT", path, headers, JSON.stringify(bodyOf(stream)))).status;
      };
      expect(await put("other", foreign)).toBe(403);
      expect(await put("one", own)).toBe(403);
      expect(await put("other", own)).toBe(201);
      expect(await put("one", foreign)).toBe(400);
      await node.server.close();
    },
  );

  test("a token is looked up only if a node of the cluster has issued it", async () => {
    const { server, ask, finds } = openNode();
    await server.join();
    const path = "/v1/stream/__ds/subscriptions/s";
    const own = streamOn(1);
    const settings = { type: "pull-wake", streams: [below(own)], wake_stream: `${below(own)}/w` };
    await ask("PUT", own, TEXT, "");
    expect((await ask("PUT", path, json, JSON.stringify(settings))).status).toBe(201);
    const claims = { audience: "hapax/subscriptions", subscription: "s", kind: "claim" };
    const rest = { generation: 1, wakeId: "w", expiresAtMs: 9e12 };
    const forged = btoa(JSON.stringify({ ...claims, ...rest })).replaceAll("=", "");
    const before = finds();
    const release = (token: string): Promise<ServerAnswer> =>
      ask("POST", `${path}/release`, { ...json, authorization: `Bearer ${token}` }, "{}");
    expect((await release(`a.${forged}.c`)).status).toBe(401);
    expect(finds()).toBe(before);
    const signer = await createSigner([
      await deriveSigningKey("a secret of the tests", { salt: "cluster", createdAtMs: 1 }),
    ]);
    const good = await issueToken(signer, {
      subscription: "s",
      kind: "claim",
      generation: 1,
      wakeId: "w",
      expiresAtMs: 9e12,
    });
    expect((await release(good)).status).not.toBe(401);
    expect(finds()).toBe(before + 1);
    await server.close();
  });

  test("a call about a stream that names none, or by another method, is refused as on one server", async () => {
    const { server, ask } = openNode();
    await server.join();
    expect((await ask("DELETE", "/_hapax/producers")).status).toBe(405);
    expect((await ask("GET", "/_hapax/producers")).status).toBe(400);
    await server.close();
  });

  test("a transaction over placements is refused by name; within one it goes to its shard", async () => {
    const { server, ask, sent } = openNode();
    await server.join();
    const headers = { ...json, "idempotency-key": '"t"' };
    const mixed = await ask(
      "POST",
      "/_hapax/transactions",
      headers,
      transaction("/v1/stream/a", "/v1/stream/b"),
    );
    expect([mixed.status, text(mixed).includes("placement_mixed")]).toEqual([400, true]);
    const path = streamOn(1);
    await ask("PUT", `${path}/1`, TEXT, "");
    await ask("PUT", `${path}/2`, TEXT, "");
    const good = await ask(
      "POST",
      "/_hapax/transactions",
      headers,
      transaction(`${path}/1`, `${path}/2`),
    );
    expect([good.status, text(good)]).toEqual([200, expect.stringContaining(`${path}/2`)]);
    expect(sent).toEqual([]);
    await server.close();
  });

  test("a cluster of one shard mixes what it likes", async () => {
    const { server, ask } = openNode(1);
    await server.join();
    await ask("PUT", "/v1/stream/b/1", TEXT, "x");
    const fork = { ...TEXT, "stream-forked-from": "/v1/stream/b/1" };
    expect((await ask("PUT", "/v1/stream/a/1", fork)).status).toBe(201);
    await server.close();
  });
});
