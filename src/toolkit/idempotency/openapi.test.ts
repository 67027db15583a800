import { expect, test } from "vitest";
import { ERRORS } from "../../base/errors.ts";
import { idempotencyOpenApi } from "./openapi.ts";

test("an OpenAPI document says of each refusal the codes that have its status", () => {
  const { parameters, responses, headers } = idempotencyOpenApi({
    header: "X-Key",
    isRequired: false,
    retainMs: 3_600_000,
  });
  expect(parameters[0]).toMatchObject({ name: "X-Key", in: "header", required: false });
  expect(parameters[0]?.["description"]).toContain("1 h");
  expect(Object.keys(headers)).toEqual(["Idempotency-Replayed", "Idempotency-Expires"]);
  for (const [status, response] of Object.entries(responses)) {
    const codes = [...JSON.stringify(response).matchAll(/urn:hapax:error:(\w+)/g)].map(
      ([, code]) => code,
    );
    expect(codes.length).toBeGreaterThan(0);
    for (const code of codes)
      expect(
        new Map<string, { status: number }>(Object.entries(ERRORS)).get(code ?? "")?.status,
      ).toBe(Number(status));
  }
});
