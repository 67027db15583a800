// What callers learn of the server itself, and what is written of them. PROTOCOL.md §12.2, §21.2, §22.
import { afterEach, expect, test } from "vitest";
import { ACTIONS, type Identity } from "../../src/streams/access/identity.ts";
import type { AuditEntry, LogEntry } from "../../src/streams/log.ts";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { openMemoryStore } from "../../src/streams/stores/memory.ts";
import { openFaultyStore } from "../kits/faulty-store.ts";

const IDENTITIES: Readonly<Record<string, Identity>> = {
  operator: { name: "operator", grants: [{ actions: ACTIONS }] },
  tenant: { name: "tenant", namespace: "/v1/stream/acme", grants: [{ actions: ACTIONS }] },
  clerk: { name: "clerk", grants: [{ actions: ACTIONS, streams: ["/v1/stream/clerk/**"] }] },
};

const opened: NodeServer[] = [];
afterEach(async () => {
  for (const server of opened.splice(0)) await server.stop();
});

async function start(options: { readonly testFaults?: boolean } = {}) {
  const store = openFaultyStore(openMemoryStore());
  const [faults, audit, lines]: [unknown[], AuditEntry[], LogEntry[]] = [[], [], []];
  const server = await startNodeServer({
    store,
    port: 0,
    logRequests: "all",
    log: (entry) => void lines.push(entry),
    onAudit: (entry) => void audit.push(entry),
    onFault: (error) => void faults.push(error),
    authorize: ({ header }) =>
      IDENTITIES[(header("authorization") ?? "").slice("Bearer ".length)] ?? { refused: "invalid" },
    ...options,
  });
  opened.push(server);
  const send = async (who: string, method: string, path: string, body?: string) => {
    const headers = { authorization: `Bearer ${who}`, "content-type": "application/json" };
    const init = body === undefined ? { method, headers } : { method, headers, body };
    const answer = await fetch(server.url + path, init);
    return { status: answer.status, text: await answer.text() };
  };
  return { store, faults, audit, lines, send };
}

test("G40 only a caller that may observe the whole server learns why it has stopped", async () => {
  const { store, faults, send } = await start();
  expect((await send("tenant", "PUT", "/v1/stream/acme/a")).status).toBe(201);
  store.failNextCommit();
  const reason = "on purpose";
  for (const who of ["operator", "tenant"]) {
    for (const [method, path, body] of [
      ["POST", "/v1/stream/acme/a", "1"],
      ["PUT", "/v1/stream/acme/b"],
      [
        "PUT",
        "/v1/stream/__ds/subscriptions/s",
        '{"type":"pull-wake","pattern":"acme/**","wake_stream":"acme/wakes"}',
      ],
    ] as const) {
      const { status, text } = await send(who, method, path, body);
      expect([method, path, status]).toEqual([method, path, 503]);
      expect(text).toContain("writes_stopped");
      expect(text).not.toContain(reason);
    }
  }
  // The operator finds it in the log, once.
  expect(faults).toHaveLength(1);
  expect(String(faults[0])).toContain(reason);
  for (const path of ["/healthz", "/readyz", "/_hapax/health"]) {
    expect((await send("operator", "GET", path)).text).toContain(reason);
    for (const who of ["tenant", "stranger"]) {
      const { status, text } = await send(who, "GET", path);
      expect([status, text.includes("stopped"), text.includes(reason)]).toEqual([503, true, false]);
    }
  }
});

test("G40 faults are injected by those alone who may administer the whole server", async () => {
  const { send } = await start({ testFaults: true });
  const fault = JSON.stringify({ path: "/v1/stream/b", status: 500 });
  for (const [who, status] of [
    ["stranger", 401],
    ["tenant", 403],
    ["clerk", 403],
    ["operator", 200],
  ] as const) {
    expect([who, (await send(who, "POST", "/_test/inject-error", fault)).status]).toEqual([
      who,
      status,
    ]);
  }
});

test("an entry has the identity and its namespace; a route that asks for no identity looks at no credential", async () => {
  const { audit, lines, send } = await start();
  await send("tenant", "PUT", "/v1/stream/acme/a");
  await send("tenant", "DELETE", "/v1/stream/other");
  await send("operator", "DELETE", "/v1/stream/acme/a");
  await send("operator", "GET", "/healthz");
  const tenant = { identity: "tenant", namespace: "/v1/stream/acme" };
  expect(audit).toMatchObject([
    { act: "stream.create", ...tenant },
    { act: "stream.delete", outcome: "refused", ...tenant },
    { act: "stream.delete", identity: "operator" },
  ]);
  expect(audit[2]).not.toHaveProperty("namespace");
  expect(lines).toMatchObject([tenant, tenant, { identity: "operator" }, { status: 200 }]);
  expect(lines[3]).not.toHaveProperty("identity");
});
