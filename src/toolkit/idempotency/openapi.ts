/** Describes operations that take a key in an OpenAPI document. */

import { IDEMPOTENCY_KEY } from "../../protocol/header-names.ts";
import type { ErrorCode } from "../../base/errors.ts";
import { ERROR_TITLES } from "../../base/error-titles.ts";
import { PROBLEM_TYPE } from "../../protocol/refusal.ts";
import { KEY_CHARS_MAX } from "../../protocol/idempotency-key.ts";
import { EXPIRES, REPLAYED } from "./answer.ts";

/** A part of an OpenAPI 3 document, for operations that take a key. */
type IdempotencyOpenApi = {
  /** For `parameters` of the operation. */
  readonly parameters: readonly Readonly<Record<string, unknown>>[];
  /** For `responses` of the operation: 400, 409 and 422. */
  readonly responses: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  /** For `headers` of all other responses. */
  readonly headers: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
};

/**
 * Describes the header, the refusals and the headers of answers for an OpenAPI document.
 *
 * ```ts
 * import { idempotencyOpenApi } from "hapax/idempotency";
 *
 * const { parameters, responses } = idempotencyOpenApi({ isRequired: true });
 * console.assert(parameters[0]?.["name"] === "Idempotency-Key" && responses["422"] !== undefined);
 * ```
 */
export function idempotencyOpenApi(
  options: {
    readonly header?: string;
    readonly isRequired?: boolean;
    readonly retainMs?: number;
  } = {},
): IdempotencyOpenApi {
  const { header = IDEMPOTENCY_KEY, isRequired = true, retainMs = 86_400_000 } = options;
  const hours = retainMs / 3_600_000;
  const text = (description: string, format?: string): Readonly<Record<string, unknown>> => ({
    description,
    schema: { type: "string", ...(format === undefined ? {} : { format }) },
  });
  return {
    parameters: [
      {
        name: header,
        in: "header",
        required: isRequired,
        description: `New for every operation, the same for its retries. Answers are kept for ${hours} h.`,
        schema: { type: "string", minLength: 1, maxLength: KEY_CHARS_MAX + 2 },
      },
      {
        name: "Prefer",
        in: "header",
        required: false,
        description:
          "`wait=n`: how many seconds to wait for the answer of a running request with the same key.",
        schema: { type: "string" },
      },
    ],
    responses: {
      "400": problems(["key_missing", "invalid_request"]),
      "409": {
        ...problems(["in_progress", "answer_not_kept", "attempts_exhausted"]),
        headers: { "Retry-After": text("Seconds after which to ask again.") },
      },
      "422": problems(["key_reused", "key_expired"]),
    },
    headers: {
      [REPLAYED]: text("`true`: this answer was given before; nothing was done now."),
      [EXPIRES]: text("An HTTP date: until then, a retry gets this answer."),
    },
  };
}

function problems(codes: readonly ErrorCode[]): Readonly<Record<string, unknown>> {
  const schema = {
    type: "object",
    required: ["type", "title", "status", "code"],
    properties: {
      type: { type: "string", enum: codes.map((code) => `urn:hapax:error:${code}`) },
      title: { type: "string" },
      status: { type: "integer" },
      code: { type: "string", enum: codes },
      detail: { type: "string" },
      help: { type: "string" },
    },
  };
  const description = codes.map((code) => ERROR_TITLES[code]).join("; ");
  return { description, content: { [PROBLEM_TYPE]: { schema } } };
}
