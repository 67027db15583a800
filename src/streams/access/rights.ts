/**
 * Reads grants that come as JSON, from a claim of a token or from a file. Strict: a member or an action that this version does
 * not know is refused, because a limit that is not understood would be no limit.
 */

import { hasHalfPair } from "../../base/exact-json.ts";
import { LIMITS } from "../../protocol/limits.ts";
import { parseStreamPath } from "../../protocol/values.ts";
import { type Action, ACTIONS, type Grant, type Quotas } from "./identity.ts";

/** What an identity may do, without its name and its end. */
export interface Rights {
  readonly grants: readonly Grant[];
  readonly namespace?: string;
  readonly quotas?: Quotas;
}

/** The value, or what is wrong with it. The problem names members and never quotes values. */
export type Read<Value> = { readonly value: Value } | { readonly problem: string };

const GRANTS_MAX = 100;
const PATTERNS_MAX = 100;
const NAMESPACE_START = "/v1/stream/";
const GRANT_MEMBERS = ["actions", "streams", "groups", "subscriptions", "producers"] as const;
const QUOTA_MEMBERS = [
  "streamsMax",
  "storedBytesMax",
  "appendsPerSecond",
  "bytesPerSecond",
  "liveReadersMax",
  "requestsMax",
] as const satisfies readonly (keyof Quotas)[];
const RIGHTS_MEMBERS = ["grants", "namespace", "quotas"] as const;

type Json = Readonly<Record<string, unknown>>;

class Wrong extends Error {}

/** Reads `{ grants, namespace?, quotas? }`. `others`: members that the caller reads itself. */
export function readRights(json: unknown, others: readonly string[] = []): Read<Rights> {
  return reading(() => {
    const { grants, namespace, quotas } = members(json, "it", [...RIGHTS_MEMBERS, ...others]);
    return {
      grants: list(grants, "grants", GRANTS_MAX).map((grant, at) =>
        grantOf(grant, `grants[${at}]`),
      ),
      ...(namespace === undefined ? {} : { namespace: namespaceOf(namespace) }),
      ...(quotas === undefined ? {} : { quotas: quotasOf(quotas) }),
    };
  });
}

/** Reads a list of grants. `name` stands in the problem. */
export function readGrants(json: unknown, name: string): Read<readonly Grant[]> {
  return reading(() =>
    list(json, name, GRANTS_MAX).map((grant, at) => grantOf(grant, `${name}[${at}]`)),
  );
}

function reading<Value>(read: () => Value): Read<Value> {
  try {
    return { value: read() };
  } catch (error) {
    if (error instanceof Wrong) return { problem: error.message };
    throw error;
  }
}

function grantOf(json: unknown, at: string): Grant {
  const { actions, streams, groups, subscriptions, producers } = members(json, at, GRANT_MEMBERS);
  const known = list(actions, `${at}.actions`, ACTIONS.length).map((action) => {
    const found = ACTIONS.find((one) => one === action);
    if (found === undefined) throw new Wrong(`${at}.actions has an action that does not exist`);
    return found;
  });
  if (known.length === 0) throw new Wrong(`${at}.actions is empty`);
  return {
    actions: known satisfies readonly Action[],
    ...namesOf({ streams, groups, subscriptions, producers }, at),
  };
}

/** Only those that are there: a limit that is left out does not limit. */
function namesOf(
  given: Readonly<Record<"streams" | "groups" | "subscriptions" | "producers", unknown>>,
  at: string,
): Omit<Grant, "actions"> {
  const present = Object.entries(given).filter(([, value]) => value !== undefined);
  return Object.fromEntries(
    present.map(([name, value]) => {
      const where = `${at}.${name}`;
      const names = list(value, where, PATTERNS_MAX).map((one) => nameOf(one, where));
      if (name === "streams" && !names.every((pattern) => pattern.startsWith("/"))) {
        throw new Wrong(`${where} has a pattern that does not begin with a slash`);
      }
      return [name, names];
    }),
  );
}

function nameOf(json: unknown, where: string): string {
  if (typeof json === "string" && json !== "" && json.length <= LIMITS.pathBytesMax) return json;
  throw new Wrong(`${where} must have texts of 1 to ${LIMITS.pathBytesMax} characters`);
}

/** As the server knows names of streams: decoded, without a slash at the end. */
function namespaceOf(json: unknown): string {
  const text = typeof json === "string" && !hasHalfPair(json) ? json : "";
  const path = parseStreamPath(text.split("/").map(encodeURIComponent).join("/"));
  if (text.startsWith(NAMESPACE_START) && path.kind === "path" && path.name === text) return text;
  throw new Wrong(`namespace must be a path below ${NAMESPACE_START} without a slash at its end`);
}

function quotasOf(json: unknown): Quotas {
  const quotas = members(json, "quotas", QUOTA_MEMBERS);
  const present = QUOTA_MEMBERS.filter((name) => quotas[name] !== undefined);
  return Object.fromEntries(
    present.map((name) => {
      const value = quotas[name];
      if (!Number.isSafeInteger(value) || Number(value) < 0) {
        throw new Wrong(`quotas.${name} must be a whole number from 0`);
      }
      return [name, value];
    }),
  );
}

function members<Name extends string>(
  json: unknown,
  at: string,
  known: readonly Name[],
): Readonly<Partial<Record<Name, unknown>>> {
  if (typeof json !== "object" || json === null || Array.isArray(json)) {
    throw new Wrong(`${at} must be an object`);
  }
  const names: readonly string[] = known;
  if (!Object.keys(json).every((name) => names.includes(name))) {
    throw new Wrong(`${at} has a member that does not exist; known: ${known.join(", ")}`);
  }
  return json as Json as Partial<Record<Name, unknown>>; // Its names were compared.
}

function list(json: unknown, at: string, max: number): readonly unknown[] {
  if (!Array.isArray(json)) throw new Wrong(`${at} must be a list`);
  if (json.length > max) throw new Wrong(`${at} must have at most ${max} entries`);
  return json;
}
