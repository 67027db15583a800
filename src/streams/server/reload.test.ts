// New options without a restart. GUARANTEES.md, G39
import { afterEach, expect, test } from "vitest";
import { isHapaxError } from "../../base/errors.ts";
import { openStage, type ServerStage } from "../../../test/kits/server-stage.ts";
import type { ServerOptions } from "./options.ts";

const stages: ServerStage[] = [];
afterEach(async () => {
  for (const { server } of stages.splice(0)) await server.close();
});

function open(options: ServerOptions = {}): ServerStage {
  const stage = openStage(options);
  stages.push(stage);
  return stage;
}

const TEXT = { "content-type": "text/plain" };
const PAGE = { ...TEXT, origin: "https://a.example" };

test("G39 a reload says what changed, and what needs a restart and stays as it was", () => {
  const { server } = open({ keyMax: 5 });
  const reloaded = server.reload({ keyMax: 6, longPollMs: 7, publicUrl: "https://b.example" });
  expect(reloaded).toEqual({ changed: ["longPollMs"], needRestart: ["publicUrl", "keyMax"] });
  expect(server.options).toMatchObject({ keyMax: 5, longPollMs: 7 });
  expect(server.options).not.toHaveProperty("publicUrl");
  expect(Object.isFrozen(server.options)).toBe(true);
  expect(server.reload({ keyMax: 5, longPollMs: 7 })).toEqual({ changed: [], needRestart: [] });
  expect(server.reload({ keyMax: 5 })).toEqual({ changed: ["longPollMs"], needRestart: [] });
  expect(server.options.longPollMs).toBe(30_000);
});

test("G39 options that are not valid change nothing", () => {
  const { server } = open({ longPollMs: 5 });
  const before = server.options;
  let error: unknown;
  try {
    server.reload({ longPollMs: 6, bodyBytesMax: 0, corsOrigins: ["nonsense"] });
  } catch (thrown) {
    error = thrown;
  }
  expect(isHapaxError(error, "invalid_options")).toBe(true);
  expect(String(error)).toMatch(/bodyBytesMax=0 .*corsOrigins=nonsense/);
  expect(server.options).toBe(before);
});

test("the next request sees the new limit of bodies, and pages of the new origins", async () => {
  const { server, ask } = open();
  await ask("PUT", "/v1/stream/a", TEXT);
  expect((await ask("POST", "/v1/stream/a", PAGE, "12345")).status).toBe(403);
  server.reload({ corsOrigins: ["https://a.example"], bodyBytesMax: 4 });
  const large = await ask("POST", "/v1/stream/a", PAGE, "12345");
  expect([large.status, large.headers["Access-Control-Allow-Origin"]]).toEqual([413, PAGE.origin]);
  expect((await ask("POST", "/v1/stream/a", PAGE, "1234")).status).toBe(204);
  server.reload({});
  expect((await ask("POST", "/v1/stream/a", PAGE, "1234")).status).toBe(403);
});

test("G39 a request that runs keeps the options that it began with, to its last header", async () => {
  const { server, ask } = open({ corsOrigins: ["https://a.example"] });
  await ask("PUT", "/v1/stream/a", TEXT);
  let send = (_text: string): void => undefined;
  const body = new Promise<string>((resolve) => {
    send = resolve;
  });
  const running = ask("POST", "/v1/stream/a", PAGE, body);
  server.reload({ bodyBytesMax: 1 });
  send("12345");
  const answer = await running;
  expect([answer.status, answer.headers["Access-Control-Allow-Origin"]]).toEqual([
    204,
    PAGE.origin,
  ]);
});

test("a long-poll waits as long as the options in force when it began say", async () => {
  const { server, clock, ask } = open({ longPollMs: 1000 });
  await ask("PUT", "/v1/stream/a", TEXT);
  const target = "/v1/stream/a?offset=now&live=long-poll";
  let answered = 0;
  const first = ask("GET", target).then(() => (answered += 1));
  await new Promise((resolve) => setImmediate(resolve));
  server.reload({ longPollMs: 5000 });
  const second = ask("GET", target).then(() => (answered += 1));
  await new Promise((resolve) => setImmediate(resolve));
  clock.advance(1000);
  await first;
  expect(answered).toBe(1);
  clock.advance(4000);
  await second;
  expect(answered).toBe(2);
});
