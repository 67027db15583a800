// The spans that the SDK of OpenTelemetry exports. PROTOCOL.md §22.2.
import { createServer } from "node:http";
import * as api from "@opentelemetry/api";
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
} from "@opentelemetry/sdk-trace-base";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { openFaultyStore } from "../../test/kits/faulty-store.ts";
import { openTelemetryTracer } from "./opentelemetry-tracer.ts";
import { type NodeServer, startNodeServer } from "./runtimes/node.ts";
import { openMemoryStore } from "./stores/memory.ts";

const exporter = new InMemorySpanExporter();
const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
const store = openFaultyStore(openMemoryStore());
const TRACE = { traceId: "4bf92f3577b34da6a3ce929d0e0e4736", spanId: "00f067aa0ba902b7" };
const PARENT = `00-${TRACE.traceId}-${TRACE.spanId}-01`;
let server: NodeServer;

beforeAll(async () => {
  api.trace.setGlobalTracerProvider(provider);
  server = await startNodeServer({
    store,
    port: 0,
    tracer: openTelemetryTracer(api),
    authorize: ({ header }) =>
      header("authorization") === undefined
        ? { refused: "missing" }
        : { name: "shop", grants: [{ actions: ["read", "create", "append", "subscribe"] }] },
    onFault: () => undefined,
    onAudit: () => undefined,
  });
});

afterEach(() => {
  exporter.reset();
});

afterAll(async () => {
  await server.stop();
  await provider.shutdown();
  api.trace.disable();
});

async function send(
  method: string,
  path: string,
  headers: Readonly<Record<string, string>> = {},
  body?: string,
): Promise<string> {
  const all = { authorization: "Bearer x", "content-type": "text/plain", ...headers };
  const init = { method, headers: all, ...(body === undefined ? {} : { body }) };
  return (await fetch(server.url + path, init)).text();
}

/** The exported spans of a kind. A span of a webhook may end later than the test that caused it looks. */
function spansOf(kind: api.SpanKind): readonly ReadableSpan[] {
  return exporter.getFinishedSpans().filter((span) => span.kind === kind);
}

const requests = (): readonly ReadableSpan[] => spansOf(api.SpanKind.SERVER);

test("a request is one span: its name has the route, and its attributes tell what came of it", async () => {
  await send("PUT", "/v1/stream/a", { "x-request-id": "r1" }, "12345");
  const [span, ...others] = requests();
  expect(others).toEqual([]);
  expect(span).toMatchObject({
    name: "PUT /{stream...}",
    status: { code: api.SpanStatusCode.UNSET },
    instrumentationScope: { name: "hapax" },
    ended: true,
  });
  expect(span?.attributes).toEqual({
    "http.request.method": "PUT",
    "http.route": "/{stream...}",
    "url.path": "/v1/stream/a",
    "hapax.request_id": "r1",
    "client.address": expect.any(String) as string,
    "http.response.status_code": 201,
    "http.request.body.size": 5,
    "http.response.body.size": 0,
    "enduser.id": "shop",
  });
  // It begins a trace.
  expect(span?.parentSpanContext).toBeUndefined();
  expect(span?.spanContext().traceId).toMatch(/^[0-9a-f]{32}$/);
});

test("a span continues the trace of its request, with its state", async () => {
  await send("GET", "/v1/stream/a?offset=-1", { traceparent: PARENT, tracestate: "vendor=1" });
  const [span] = requests();
  expect(span?.spanContext().traceId).toBe(TRACE.traceId);
  expect(span?.spanContext().traceState?.serialize()).toBe("vendor=1");
  expect(span?.parentSpanContext).toMatchObject({ ...TRACE, isRemote: true });
});

test("a trace that its client does not record is not recorded here", async () => {
  await send("GET", "/v1/stream/a", { traceparent: PARENT.replace(/01$/, "00") });
  await send("GET", "/v1/stream/b");
  expect(requests().map(({ attributes }) => attributes["url.path"])).toEqual(["/v1/stream/b"]);
});

test("a refusal is no error of the server, and names its code", async () => {
  await send("GET", "/v1/stream/missing");
  await fetch(`${server.url}/v1/stream/a`);
  const seen = requests().map(({ status, attributes }) => [
    status.code,
    attributes["http.response.status_code"],
    attributes["error.type"],
    attributes["enduser.id"],
  ]);
  expect(seen).toEqual([
    [api.SpanStatusCode.UNSET, 404, "stream_not_found", "shop"],
    [api.SpanStatusCode.UNSET, 401, "unauthenticated", undefined],
  ]);
});

test("a live answer is one span, which ends with it", async () => {
  const stop = new AbortController();
  const { signal } = stop;
  const headers = { authorization: "Bearer x" };
  const answer = await fetch(`${server.url}/v1/stream/a?offset=-1&live=sse`, { headers, signal });
  await answer.body?.getReader().read();
  expect(requests()).toEqual([]);
  stop.abort();
  await vi.waitFor(() => expect(requests()).toHaveLength(1), 10_000);
  const [span] = requests();
  expect(span?.name).toBe("GET /{stream...}");
  expect(span?.attributes["http.response.body.size"]).toBeGreaterThan(0);
});

test("a webhook is a span in a trace of its own, and its receiver gets it", async () => {
  const received: unknown[] = [];
  const receiver = createServer((request, answer) => {
    received.push(request.headers["traceparent"]);
    request.resume().on("end", () => answer.writeHead(200).end("{}"));
  });
  await new Promise<void>((resolve) => void receiver.listen(0, "127.0.0.1", resolve));
  const address = receiver.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  const hook = { url: `http://127.0.0.1:${port}/hook?secret=1` };
  try {
    const settings = JSON.stringify({ type: "webhook", streams: ["a"], webhook: hook });
    const type = { "content-type": "application/json" };
    await send("PUT", "/v1/stream/__ds/subscriptions/s", type, settings);
    await send("POST", "/v1/stream/a", { traceparent: PARENT }, "x");
    const webhooks = (): readonly ReadableSpan[] => spansOf(api.SpanKind.CLIENT);
    await vi.waitFor(() => expect(webhooks().length).toBeGreaterThan(0), 10_000);
    const [span] = webhooks();
    const { traceId, spanId } = span?.spanContext() ?? {};
    expect(received[0]).toBe(`00-${traceId ?? ""}-${spanId ?? ""}-01`);
    expect([traceId === TRACE.traceId, span?.parentSpanContext]).toEqual([false, undefined]);
    expect(span?.name).toBe("POST webhook");
    expect(span?.attributes).toMatchObject({
      "server.address": `127.0.0.1:${port}`,
      "http.response.status_code": 200,
    });
    expect(JSON.stringify(span?.attributes)).not.toContain("secret");
  } finally {
    await new Promise((resolve) => void receiver.close(resolve));
  }
});

test("a failed request is an error", async () => {
  store.failNextCommit();
  await send("POST", "/v1/stream/a", {}, "x");
  const [span] = requests();
  expect(span?.status).toEqual({ code: api.SpanStatusCode.ERROR });
  expect(span?.attributes["error.type"]).toBe("writes_stopped");
});

test("without a provider there are spans that go nowhere, and no trace to hand on", () => {
  api.trace.disable();
  const tracer = openTelemetryTracer(api);
  const span = tracer.start({ name: "GET /", kind: "server", attributes: {} });
  expect(span.traceparent).toBeUndefined();
  expect(() => span.end({}, true)).not.toThrow();
  expect(exporter.getFinishedSpans()).toEqual([]);
});
