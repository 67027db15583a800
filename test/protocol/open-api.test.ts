// PROTOCOL.md §12.8: the document that describes the interface, and the interface itself.
import { readFileSync } from "node:fs";
import { Validator } from "@seriousme/openapi-schema-validator";
import { afterAll, describe, expect, test, vi } from "vitest";
import { ERRORS } from "../../src/base/errors.ts";
import { startNodeServer } from "../../src/streams/runtimes/node.ts";
import { describeRoutes, templateOf } from "../../src/streams/server/open-api.ts";
import { RESERVED_ROUTES, STREAM_ROUTE } from "../../src/streams/server/routes.ts";
import { extensionCases } from "../../src/testing/testing.ts";
import { Description, type OpenApi } from "../kits/described.ts";
import { root } from "../kits/documents.ts";

vi.setConfig({ maxConcurrency: 16 });

const ROUTES = [...RESERVED_ROUTES, STREAM_ROUTE];
const server = await startNodeServer({ store: "memory", port: 0, onAudit: () => undefined });
const plainFetch = globalThis.fetch;
const document = (await (await plainFetch(`${server.url}/_hapax/openapi.json`)).json()) as OpenApi;
const description = new Description(document);

afterAll(async () => {
  vi.unstubAllGlobals();
  await server.stop();
});

test("the document is one of OpenAPI 3.1", async () => {
  const { valid, errors } = await new Validator().validate({ ...structuredClone(document) });
  expect(errors).toBeUndefined();
  expect(valid).toBe(true);
  expect(document.openapi).toBe("3.1.0");
});

test("every route and method of the table is in the document, and nothing else", () => {
  const declared = ROUTES.flatMap(({ path, methods }) =>
    Object.keys(methods).map((method) => `${method.toLowerCase()} ${templateOf(path)}`),
  );
  const described = Object.entries(document.paths).flatMap(([path, item]) =>
    Object.keys(item)
      .filter((key) => key !== "parameters")
      .map((method) => `${method} ${path}`),
  );
  expect(described.toSorted()).toEqual(declared.toSorted());
});

test("the security of an operation is what the table says that it needs", () => {
  for (const { path, methods } of ROUTES) {
    for (const [method, { needs }] of Object.entries(methods)) {
      const operation = document.paths[templateOf(path)]?.[method.toLowerCase()];
      const { security } = operation as unknown as { readonly security: readonly object[] };
      const schemes = security.flatMap((one) => Object.keys(one));
      if (needs === "nothing") expect(schemes).toEqual([]);
      else if (needs === "token") expect(schemes).toEqual(["wakeToken"]);
      else expect(schemes).toEqual(expect.arrayContaining(["bearer", "clientCertificate"]));
    }
  }
});

test("a problem has every code of the table of errors", () => {
  const { components } = document as unknown as {
    readonly components: {
      readonly schemas: {
        readonly Problem: { readonly properties: { readonly code: { readonly enum: string[] } } };
      };
    };
  };
  expect(components.schemas.Problem.properties.code.enum).toEqual(Object.keys(ERRORS));
});

test("the served document, the one of the table and docs/openapi.json are one", () => {
  const built = JSON.parse(JSON.stringify(describeRoutes(ROUTES))) as unknown;
  expect(document).toEqual(built);
  expect(JSON.parse(readFileSync(`${root}/docs/openapi.json`, "utf8"))).toEqual(built);
});

describe("every answer is described", () => {
  const problems = new Set<string>();
  const recording: typeof fetch = async (input, init) => {
    const response = await plainFetch(input, init);
    const { url, method } = new Request(input, { ...init, body: null });
    const contentType = response.headers.get("content-type") ?? undefined;
    const isLive = contentType === "text/event-stream";
    // A live answer does not end by itself.
    const text = isLive ? "" : await response.clone().text();
    const path = new URL(url).pathname;
    const problem = description.problemOf({
      method,
      path,
      status: response.status,
      contentType,
      text,
    });
    if (problem !== undefined) problems.add(problem);
    return response;
  };
  vi.stubGlobal("fetch", recording);

  for (const { title, run, isSlow } of extensionCases({ url: server.url })) {
    if (!isSlow) test.concurrent(title, run);
  }

  test("of all these cases", () => {
    expect([...problems]).toEqual([]);
    expect(description.seen.size).toBeGreaterThan(60);
  });
});
