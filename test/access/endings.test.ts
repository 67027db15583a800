// PROTOCOL.md §21.1: a credential that ends while the body of its request comes does nothing more, on any route.
import { describe, expect, test } from "vitest";
import { endIdentity } from "../../src/streams/access/endings.ts";
import { ACTIONS, type Authorize, type Identity } from "../../src/streams/access/identity.ts";
import type { ServerAnswer } from "../../src/streams/server/exchange.ts";
import { type Facts, type Names, SAMPLES, type SampleRequest } from "../kits/access-samples.ts";
import { openStage, type ServerStage, textOf } from "../kits/server-stage.ts";
import { turn } from "../kits/watch.ts";

const START_MS = Date.UTC(2026, 0, 1);
const NAMES: Names = {
  mark: "m",
  stream: "/v1/stream/acme/s",
  wakes: "/v1/stream/acme/wakes",
  group: "g",
  subscription: "s",
  producer: "p",
  key: "k",
};

/** Every operation of the table that takes a body from a caller with an identity. */
const OPERATIONS = Object.entries(SAMPLES).flatMap(([path, samples]) =>
  Object.entries(samples).flatMap(([key, sample]) => {
    const [method = ""] = key.split(" ");
    const mayHaveBody = method === "POST" || method === "PUT";
    const isMeant = mayHaveBody && Array.isArray(sample.needs);
    return isMeant ? ([[`${key} ${path}`, { path, method, sample }]] as const) : [];
  }),
);

const READ_NO_BODY = new Set([
  "/_hapax/producers",
  "/_hapax/trim",
  "/_hapax/retention",
  "/_hapax/compaction",
  "/_hapax/backups",
]);

function openWith(guest: Identity): ServerStage {
  const root: Identity = { name: "root", grants: [{ actions: ACTIONS }] };
  const authorize: Authorize = ({ header }) => (header("x-name") === "root" ? root : guest);
  return openStage({}, undefined, authorize);
}

function send(
  stage: ServerStage,
  name: string,
  method: string,
  { target, headers = {} }: SampleRequest,
  body: string | Promise<string>,
): Promise<ServerAnswer> {
  const lower = Object.entries(headers).map(([field, value]) => [field.toLowerCase(), value]);
  const all = { ...(Object.fromEntries(lower) as Record<string, string>), "x-name": name };
  return stage.ask(method, target, all, body);
}

const asRoot =
  (stage: ServerStage) =>
  async (method: string, request: SampleRequest): Promise<Facts> => {
    const answer = await send(stage, "root", method, request, request.body ?? "");
    expect(answer.status, textOf(answer)).toBeLessThan(300);
    const text = textOf(answer);
    return text === "" ? {} : (JSON.parse(text) as Facts);
  };

const noReceiver = { url: "", wakeOf: () => Promise.reject(new Error("there are no webhooks")) };

const ENDINGS = {
  expires: {
    identity: { expiresAtMs: START_MS + 1000 },
    end: (stage: ServerStage) => stage.clock.advance(2000),
    code: "credential_expired",
  },
  "is revoked": {
    identity: {},
    end: (_stage: ServerStage, guest: Identity) => endIdentity(guest, "revoked"),
    code: "unauthenticated",
  },
} as const;

describe.each(Object.entries(ENDINGS))("a credential that %s", (_how, { identity, end, code }) => {
  test.each(OPERATIONS)("G40 while its body comes does nothing: %s", async (_, operation) => {
    const { sample, method } = operation;
    const guest: Identity = { name: "guest", grants: [{ actions: ACTIONS }], ...identity };
    const stage = openWith(guest);
    const facts = (await sample.prepare?.(NAMES, asRoot(stage), noReceiver)) ?? {};
    const request = sample.request(NAMES, facts);
    let finish: (body: string) => void = () => undefined;
    const slow = new Promise<string>((resolve) => {
      finish = resolve;
    });
    const answer = send(stage, "guest", method, request, slow);
    await turn();
    end(stage, guest);
    finish(request.body ?? "");
    const settled = await answer;
    if (READ_NO_BODY.has(operation.path)) {
      // It has answered before. A store in memory has no backups.
      expect([201, 204, 501]).toContain(settled.status);
      return;
    }
    const refused = JSON.parse(textOf(settled)) as Facts;
    expect([settled.status, refused["code"]]).toEqual([401, code]);
  });
});
