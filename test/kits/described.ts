/** Compares answers of a server with its OpenAPI document: status, media type, code, and JSON by its schema. */

import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import { RouteTable } from "../../src/streams/server/route.ts";
import { RESERVED_ROUTES, STREAM_ROUTE } from "../../src/streams/server/routes.ts";

export interface SeenAnswer {
  readonly method: string;
  /** Without the query. */
  readonly path: string;
  readonly status: number;
  readonly contentType: string | undefined;
  readonly text: string;
}

interface Response {
  readonly content?: Readonly<Record<string, unknown>>;
  readonly "x-hapax-codes"?: readonly string[];
  readonly $ref?: string;
}

type Operations = Readonly<
  Record<string, { readonly responses: Readonly<Record<string, Response>> }>
>;

export interface OpenApi {
  readonly openapi: string;
  readonly paths: Readonly<Record<string, Operations>>;
  readonly components: { readonly responses: Readonly<Record<string, Response>> };
}

const TABLE = new RouteTable(RESERVED_ROUTES);
const PROBLEM = "application/problem+json";

/** Answers to what no route takes: wrong methods, unknown reserved paths, preflights, paths that are none. */
const isOfNoRoute = ({ method, path, status }: SeenAnswer): boolean =>
  method === "OPTIONS" ||
  status === 405 ||
  (TABLE.find(path) === undefined && /^\/(_hapax|v1\/stream\/__ds|_test)(\/|$)/.test(path));

export class Description {
  readonly #document: OpenApi;
  readonly #ajv = new Ajv2020({ strict: false, validateFormats: false });
  readonly #validators = new Map<string, ValidateFunction>();
  /** Operations and statuses that were seen, such as `GET /_hapax/streams 200`. */
  readonly seen = new Set<string>();

  constructor(document: OpenApi) {
    this.#document = document;
    this.#ajv.addSchema(document, "document");
  }

  /** What is wrong with an answer, or undefined. */
  problemOf(answer: SeenAnswer): string | undefined {
    if (isOfNoRoute(answer)) return undefined;
    const { method, path, status, contentType = "", text } = answer;
    const template = (TABLE.find(path)?.route ?? STREAM_ROUTE).path.replace("...}", "}");
    const at = `${method} ${template} ${status}`;
    this.seen.add(at);
    const { paths, components } = this.#document;
    const named = paths[template]?.[method.toLowerCase()]?.responses[status];
    const shared = named?.$ref?.split("/").at(-1);
    const response = shared === undefined ? named : components.responses[shared];
    if (response === undefined) return `${at} is not described: ${text}`;
    if (text === "") return undefined;
    const { content = {} } = response;
    const key = [contentType, "*/*"].find((type) => Object.hasOwn(content, type));
    if (key === undefined) return `${at} is not described as ${contentType}`;
    if (contentType !== PROBLEM && contentType !== "application/json") return undefined;
    const value: unknown = JSON.parse(text);
    if (contentType === PROBLEM) {
      const { code } = value as { readonly code: string };
      if (response["x-hapax-codes"]?.includes(code) !== true)
        return `${at} has not the code ${code}`;
    }
    const own = ["paths", template, method.toLowerCase(), "responses", `${status}`];
    const place = shared === undefined ? own : ["components", "responses", shared];
    return this.#schemaProblem([...place, "content", key], value, at);
  }

  #schemaProblem(place: readonly string[], value: unknown, at: string): string | undefined {
    const pointer = [...place, "schema"]
      .map((part) => encodeURIComponent(part.replaceAll("~", "~0").replaceAll("/", "~1")))
      .join("/");
    let validate = this.#validators.get(pointer);
    if (validate === undefined) {
      validate = this.#ajv.compile({ $ref: `document#/${pointer}` });
      this.#validators.set(pointer, validate);
    }
    return validate(value) ? undefined : `${at}: ${this.#ajv.errorsText(validate.errors)}`;
  }
}
