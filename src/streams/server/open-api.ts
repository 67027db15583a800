/**
 * The description of the interface as an OpenAPI 3.1 document. Paths, methods and what a caller needs come from the table of routes;
 * headers, bodies and statuses from the lists beside. PROTOCOL.md §12.8.
 *
 *   - every operation of the table is in the document, and nothing else;
 *   - a status that an operation does not name is not one of its answers.
 */

import { type ErrorCode, ERRORS } from "../../base/errors.ts";
import { ERROR_TITLES } from "../../base/error-titles.ts";
import { HEADER } from "../../protocol/headers.ts";
import { PROBLEM_TYPE } from "../../protocol/refusal.ts";
import {
  ANSWER_HEADERS,
  type Json,
  PARAMETERS,
  PATH_PARAMETERS,
  SCHEMAS,
} from "./open-api-components.ts";
import {
  EVERY_REFUSAL,
  OPERATIONS,
  type OperationAnswer,
  type OperationDetails,
  WRITE_REFUSALS,
} from "./open-api-details.ts";
import { SUMMARIES } from "./open-api-summaries.ts";
import type { Need, Route, RouteMethod, RouteOperation } from "./route.ts";

/** Changes when a client would have to change. */
const INTERFACE_VERSION = "1";

const DESCRIPTION =
  "A server of durable streams over HTTP. PROTOCOL.md says what each request means. A server without authentication takes every " +
  "request without a credential; `security` is about servers with one.";

const SECURITY_SCHEMES = {
  bearer: {
    type: "http",
    scheme: "bearer",
    description:
      "An API key of this server, which begins with `hpx_`, or a token (JWT) of its identity provider.",
  },
  signedUrl: {
    type: "apiKey",
    in: "query",
    name: "hapax-signature",
    description:
      "A signed URL. Beside the signature it has `hapax-action`, `hapax-expires`, `hapax-key`, and may have `hapax-from` and `hapax-name`.",
  },
  clientCertificate: {
    type: "mutualTLS",
    description: "A certificate of an authority that the server trusts (`--tls-client-ca`).",
  },
  wakeToken: {
    type: "http",
    scheme: "bearer",
    description: "The token that came with a wake or a claim of the subscription.",
  },
} as const;

/** In answers to callers whose rates are limited. */
const RATES: readonly string[] = [HEADER.rateLimitPolicy, HEADER.rateLimit];

/** The whole document, as plain data. */
export function describeRoutes(routes: readonly Route[]): Json {
  const paths: Record<string, Json> = {};
  const shared: Record<string, Json> = {};
  for (const route of routes) paths[templateOf(route.path)] = describePath(route, shared);
  return {
    openapi: "3.1.0",
    info: {
      title: "Hapax",
      version: INTERFACE_VERSION,
      description: DESCRIPTION,
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: [{ url: "/" }],
    paths,
    components: {
      schemas: { ...SCHEMAS, Problem: problemSchema() },
      responses: shared,
      parameters: PARAMETERS,
      headers: ANSWER_HEADERS,
      securitySchemes: SECURITY_SCHEMES,
    },
  };
}

/** What a table has of an operation. HEAD is as GET. */
function entryOf<Entry>(
  table: Readonly<Record<string, Entry>>,
  path: string,
  method: string,
): Entry | undefined {
  return (
    table[`${method} ${path}`] ?? (method === "HEAD" ? entryOf(table, path, "GET") : undefined)
  );
}

function describePath({ path, methods }: Route, shared: Record<string, Json>): Json {
  const item: Record<string, unknown> = {};
  const parameters = [...path.matchAll(/\{(\w+)(\.\.\.)?\}/g)].map(([, name = "", rest]) => ({
    name,
    in: "path",
    required: true,
    description: `${PATH_PARAMETERS[name] ?? "Percent-encoded."}${rest === undefined ? "" : " It may have slashes."}`,
    schema: { type: "string" },
  }));
  if (parameters.length > 0) item["parameters"] = parameters;
  for (const [method, operation] of Object.entries(methods)) {
    // The table has such methods alone.
    item[method.toLowerCase()] = describeOperation(path, method as RouteMethod, operation, shared);
  }
  return item;
}

function describeOperation(
  path: string,
  method: RouteMethod,
  operation: RouteOperation,
  shared: Record<string, Json>,
): Json {
  const details = entryOf(OPERATIONS, path, method);
  const summary = entryOf(SUMMARIES, path, method);
  if (details === undefined || summary === undefined) {
    throw new Error(`there is no description of ${method} ${path}`);
  }
  const { needs } = operation;
  const parameters = (details.parameters ?? []).map((name) => ({
    $ref: `#/components/parameters/${name}`,
  }));
  return {
    operationId: operationId(path, method),
    summary,
    ...(Array.isArray(needs) ? { "x-hapax-actions": needs } : {}),
    security: securityOf(needs, path, method),
    ...(parameters.length > 0 ? { parameters } : {}),
    ...(details.body === undefined ? {} : { requestBody: details.body }),
    responses: responsesOf(details, needs, method, shared),
  };
}

function securityOf(needs: Need, path: string, method: RouteMethod): readonly Json[] {
  if (needs === "nothing") return [];
  if (needs === "token") return [{ wakeToken: [] }];
  const canSign = path === "/{stream...}" && ["GET", "HEAD", "POST"].includes(method);
  const signed = canSign ? [{ signedUrl: [] }] : [];
  return [{ bearer: [] }, ...signed, { clientCertificate: [] }];
}

/** Refusals that are nothing but that are written once, in `shared`. */
function responsesOf(
  details: OperationDetails,
  needs: Need,
  method: RouteMethod,
  shared: Record<string, Json>,
): Json {
  const isHead = method === "HEAD";
  const isCounted = Array.isArray(needs) && method !== "GET" && !isHead;
  const responses: Record<string, Json> = {};
  for (const [status, answer] of Object.entries(details.answers)) {
    responses[status] = describeAnswer(answer, isHead, isCounted ? RATES : []);
  }
  const codes = new Set<ErrorCode>([...(details.refusals ?? []), ...EVERY_REFUSAL]);
  if (details.body !== undefined || ["PUT", "DELETE"].includes(method)) {
    for (const code of WRITE_REFUSALS) codes.add(code);
  }
  if (Array.isArray(needs)) {
    codes.add("unauthenticated").add("credential_expired").add("not_allowed");
    codes.add("authentication_unavailable");
  }
  if (needs === "token") codes.add("token_invalid").add("token_expired");
  for (const status of new Set([...codes].map((code) => ERRORS[code].status))) {
    const same = [...codes].filter((code) => ERRORS[code].status === status);
    const own = responses[status];
    const name = `${isHead ? "head." : ""}${same.join(".")}`;
    if (own === undefined) shared[name] ??= describeRefusal(same, {}, isHead);
    responses[status] =
      own === undefined
        ? { $ref: `#/components/responses/${name}` }
        : describeRefusal(same, own, isHead);
  }
  return responses;
}

function describeAnswer(
  { description, content, headers = [] }: OperationAnswer,
  isHead: boolean,
  more: readonly string[],
): Json {
  const named = [HEADER.requestId, ...headers, ...more];
  return {
    description,
    headers: Object.fromEntries(named.map((name) => [name, headerRef(name)])),
    ...(content === undefined || isHead ? {} : { content: mediaTypes(content) }),
  };
}

function describeRefusal(codes: readonly ErrorCode[], before: Json, isHead: boolean): Json {
  const titles = codes.map((code) => `\`${code}\`: ${ERROR_TITLES[code]}.`).join(" ");
  const status = ERRORS[codes[0] ?? "internal"].status;
  const headers: string[] = [HEADER.requestId];
  if (status === 401) headers.push(HEADER.authenticate);
  if (codes.some((code) => ERRORS[code].retry === "later") && (status === 429 || status >= 500)) {
    headers.push(HEADER.retryAfter);
  }
  if (codes.includes("quota_exceeded")) headers.push(...RATES);
  if (codes.includes("unsupported_encoding")) headers.push(HEADER.acceptEncoding);
  const { description: words } = before;
  const content = { [PROBLEM_TYPE]: { schema: { $ref: "#/components/schemas/Problem" } } };
  return {
    description: typeof words === "string" ? `${words} ${titles}` : titles,
    headers: {
      ...(before["headers"] as Json | undefined),
      ...Object.fromEntries(headers.map((name) => [name, headerRef(name)])),
    },
    ...(isHead ? {} : { content: { ...(before["content"] as Json | undefined), ...content } }),
    "x-hapax-codes": codes,
  };
}

function mediaTypes(content: OperationAnswer["content"] = {}): Json {
  const entries = Object.entries(content).map(([type, schema]) => {
    return [
      type,
      typeof schema === "string"
        ? { schema: { $ref: `#/components/schemas/${schema}` } }
        : { schema },
    ];
  });
  return Object.fromEntries(entries) as Json;
}

function headerRef(name: string): Json {
  return { $ref: `#/components/headers/${name}` };
}

/** RFC 9457, with the codes of this server. */
function problemSchema(): Json {
  const codes = Object.keys(ERRORS);
  return {
    type: "object",
    required: ["type", "title", "status", "code", "detail", "help"],
    properties: {
      type: { type: "string", format: "uri" },
      title: { type: "string" },
      status: { type: "integer" },
      code: {
        type: "string",
        enum: codes,
        description: "The only member that programs should look at.",
      },
      detail: { type: "string" },
      help: { type: "string" },
    },
  };
}

/** OpenAPI has no word for a parameter with slashes; the description of the parameter says it. */
export function templateOf(path: string): string {
  return path.replace("...}", "}");
}

function operationId(path: string, method: string): string {
  const words = path.split(/[^A-Za-z0-9]+/).filter((word) => word !== "");
  return [method.toLowerCase(), ...words].join("-");
}
