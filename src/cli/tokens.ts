/**
 * `hapax tokens`: makes, lists and revokes API keys. It works on the file of keys, not over HTTP: a person who can write the file owns the
 * server. A key is shown once, on stdout alone. PROTOCOL.md §21.8.
 */

import { join } from "node:path";

import { utf8Of } from "../base/bytes.ts";
import { webDigest } from "../base/digest.ts";
import { isHapaxError } from "../base/errors.ts";
import { hexOf } from "../base/hex.ts";
import { formatRfc3339, parseRfc3339 } from "../protocol/values.ts";
import {
  API_KEY_PREFIX,
  createApiKey,
  isApiKeyId,
  parseApiKey,
} from "../streams/access/api-key.ts";
import {
  checkGrants,
  checkNamespace,
  checkQuotas,
  type Problem,
} from "../streams/access/check-identity.ts";
import { ACTIONS, type Grant } from "../streams/access/identity.ts";
import {
  CERTIFICATE_RULE,
  isCertificateName,
  isKeyName,
  KEY_NAME_RULE,
  type ApiKeyRecord,
  TOKENS_FILE_NAME,
} from "../streams/access/key-document.ts";
import { nearest, quote } from "./arguments.ts";
import type { Command, Invocation } from "./command.ts";
import { loadPlaces } from "./configuration.ts";
import { confirm } from "./confirm.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT, usageFailure } from "./failure.ts";
import { parseQuotaText } from "./option-kinds.ts";
import { CONFIG_OPTION, SERVE_OPTIONS } from "./serve-options.ts";
import { streamPath } from "./target.ts";
import { tell } from "./tell.ts";
import { createPaint, formatTable } from "./terminal.ts";

/** The options of `create` alone. */
const CREATE_OPTIONS = [
  "name",
  "allow",
  "streams",
  "groups",
  "subscriptions",
  "producers",
  "namespace",
  "quota",
  "expires",
  "certificate",
];
const ACTS = ["create", "list", "revoke"];

async function runTokens(invocation: Invocation, context: Context): Promise<number> {
  const [act = "list", id] = invocation.positionals;
  if (!ACTS.includes(act)) {
    const near = nearest(act, ACTS);
    const advice = near === undefined ? `actions: ${ACTS.join(", ")}` : `did you mean ${near}?`;
    throw usageFailure(`unknown action ${quote(act)} of tokens`, [advice]);
  }
  const stray = CREATE_OPTIONS.find((name) => invocation.has(name));
  if (act !== "create" && stray !== undefined)
    throw usageFailure(`--${stray} is for tokens create`);
  if (act === "revoke") {
    if (id === undefined)
      throw usageFailure("tokens revoke needs <id>", ["see: hapax tokens list"]);
    return guarded(() => revoke(invocation, context, id));
  }
  if (id !== undefined) throw usageFailure(`tokens ${act} does not take ${quote(id)}`);
  if (act === "create") return guarded(() => create(invocation, context));
  return guarded(() => list(invocation, context));
}

/** A file that cannot be used is reported without a stack. */
async function guarded(run: () => Promise<number>): Promise<number> {
  try {
    return await run();
  } catch (error) {
    if (!isHapaxError(error)) throw error;
    const problem = { code: error.code };
    throw new CommandFailure(EXIT.refused, error.message, [], problem, { cause: error });
  }
}

async function pathOf(invocation: Invocation, context: Context): Promise<string> {
  const { dir, tokensFile } = await loadPlaces(invocation, context);
  if (tokensFile !== undefined) return tokensFile;
  if (dir !== undefined) return join(dir, TOKENS_FILE_NAME);
  throw usageFailure("streams in memory or in a database have no directory for the keys", [
    "name the file of keys with --tokens-file, here and for hapax serve",
  ]);
}

async function create(invocation: Invocation, context: Context): Promise<number> {
  const rights = readRights(invocation, context);
  const path = await pathOf(invocation, context);
  const { key, id, secret } = createApiKey(context.random);
  const { grants, namespace, quotas, name, expiresAt, certificate } = rights;
  const record: ApiKeyRecord = {
    id,
    name,
    ...(certificate === undefined
      ? { sha256: hexOf(await webDigest(utf8Of(secret))) }
      : { certificate }),
    createdAt: formatRfc3339(context.nowMs()),
    ...(expiresAt === undefined ? {} : { expiresAt }),
    grants,
    ...(namespace === undefined ? {} : { namespace }),
    ...(quotas === undefined ? {} : { quotas }),
  };
  const isFirst = await context.keyFiles.change(path, (keys) => {
    if (keys.some((other) => other.id === id)) throw usageFailure("the new id is taken: try again");
    return { keys: [...keys, record], answer: keys.length === 0 };
  });
  if (certificate === undefined) {
    const shown = invocation.has("json") ? JSON.stringify({ key, ...shownOf(record) }) : key;
    await context.stdout.write(`${shown}\n`);
    const made = `hapax: made key ${id} (${name}) in ${path}; it is shown this once\n`;
    await context.stderr.write(made);
  } else {
    const facts = { ...record, created: true };
    await tell(invocation, context, facts, "made", `key ${id} (${name}) for ${certificate}`);
  }
  if (isFirst) {
    await context.stderr.write(
      "hapax: it is the first key. A server that runs already must be restarted; from then on every request needs a key\n",
    );
  }
  return EXIT.done;
}

/** All but the digest: nothing that this program prints helps to guess a secret. */
function shownOf(record: ApiKeyRecord): object {
  return Object.fromEntries(Object.entries(record).filter(([name]) => name !== "sha256"));
}

interface CreateRights extends Pick<ApiKeyRecord, "name" | "grants" | "namespace" | "quotas"> {
  readonly expiresAt: string | undefined;
  readonly certificate: string | undefined;
}

/** All problems of the command line at once, each with its option. */
function readRights(invocation: Invocation, context: Context): CreateRights {
  const problems: string[] = [];
  const problem = (text: string): number => problems.push(text);
  const name = invocation.value("name") ?? "";
  if (!isKeyName(name)) problem(`--name must be ${KEY_NAME_RULE}`);
  const actions = actionsOf(invocation);
  if (actions.length === 0) problem("--allow must name at least one action, or all");
  const lists = {
    streams: invocation.values("streams").map(streamPath),
    groups: invocation.values("groups"),
    subscriptions: invocation.values("subscriptions"),
    producers: invocation.values("producers"),
  };
  const limits = Object.entries(lists).filter(([, entries]) => entries.length > 0);
  const grant = { actions, ...Object.fromEntries(limits) };
  checkGrants([grant], "", (text) => problem(text.replace(/^\[0\]\.(\w+)/, optionOf)));
  const [given, quotas] = [invocation.value("namespace"), quotasOf(invocation)];
  const namespace = given === undefined ? undefined : streamPath(given);
  if (namespace !== undefined) checkNamespace(namespace, "--namespace", problem);
  if (quotas !== undefined) checkQuotas(quotas, "--quota", problem);
  const certificate = invocation.value("certificate");
  if (certificate !== undefined && !isCertificateName(certificate)) {
    problem(`--certificate must be ${CERTIFICATE_RULE}`);
  }
  const expiresAt = expiryOf(invocation, context, problem);
  if (problems.length > 0) throw usageFailure("the key cannot be made", problems);
  return {
    name,
    grants: [grant as Grant], // It was just checked.
    ...(namespace === undefined ? {} : { namespace }),
    ...(quotas === undefined ? {} : { quotas }),
    expiresAt,
    certificate,
  };
}

/** The option that gives a member of the grant. */
function optionOf(_: string, member: string): string {
  return member === "actions" ? "--allow" : `--${member}`;
}

/** Commas between actions, and `all` for all of them. */
function actionsOf(invocation: Invocation): readonly string[] {
  const words = invocation.values("allow").flatMap((text) => text.split(","));
  const actions = words.map((word) => word.trim()).filter((word) => word !== "");
  return actions.includes("all") ? ACTIONS : [...new Set(actions)];
}

function quotasOf(invocation: Invocation): Readonly<Record<string, number>> | undefined {
  const given = invocation.values("quota");
  if (given.length === 0) return undefined;
  return Object.fromEntries(
    given.map((text) => {
      const quota = parseQuotaText(text);
      if (quota !== undefined) return quota;
      throw usageFailure(
        `--quota is ${quote(text)}; allowed: a name and a number, such as streamsMax=100`,
      );
    }),
  );
}

const UNIT_MS: Readonly<Record<string, number>> = {
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 7 * 86_400_000,
};

function expiryOf(invocation: Invocation, context: Context, problem: Problem): string | undefined {
  const text = invocation.value("expires");
  if (text === undefined) return undefined;
  const [, count = "", unit = ""] = /^(\d{1,6})([smhdw])$/.exec(text) ?? [];
  const afterMs = Number(count) * (UNIT_MS[unit] ?? 0);
  const atMs = count === "" ? parseRfc3339(text) : context.nowMs() + afterMs;
  if (atMs !== undefined && atMs > context.nowMs()) return formatRfc3339(atMs);
  problem("--expires must be a time in the future: 12h, 90d, 52w, or 2027-01-31T00:00:00Z");
  return undefined;
}

async function list(invocation: Invocation, context: Context): Promise<number> {
  const path = await pathOf(invocation, context);
  const keys = await context.keyFiles.read(path);
  const nowMs = context.nowMs();
  if (invocation.has("json")) {
    const lines = (keys ?? []).map((key) =>
      JSON.stringify({ ...shownOf(key), state: stateOf(key, nowMs) }),
    );
    await context.stdout.write(lines.map((line) => `${line}\n`).join(""));
    return EXIT.done;
  }
  if (keys === undefined || keys.length === 0) {
    await context.stderr.write(`no keys in ${path}\n`);
    return EXIT.done;
  }
  const header = ["ID", "NAME", "ACTIONS", "STREAMS", "NAMESPACE", "CREATED", "EXPIRES", "STATE"];
  const rows = keys.map((key) => [
    key.id,
    key.name,
    actionsText(key),
    streamsText(key),
    key.namespace ?? "",
    dayOf(key.createdAt),
    key.expiresAt === undefined ? "never" : dayOf(key.expiresAt),
    stateOf(key, nowMs),
  ]);
  await context.stdout.write(formatTable(header, rows, createPaint(context.stdout, context.env)));
  return EXIT.done;
}

function actionsText({ grants }: ApiKeyRecord): string {
  const actions = new Set(grants.flatMap((grant) => grant.actions));
  return actions.size === ACTIONS.length ? "all" : [...actions].join(",");
}

function streamsText({ grants }: ApiKeyRecord): string {
  if (grants.some(({ streams }) => streams === undefined)) return "all";
  return [...new Set(grants.flatMap(({ streams }) => streams ?? []))].join(", ");
}

/** Without seconds: a table is for people. `--json` has the whole time. */
function dayOf(time: string): string {
  return time.replace(/T(\d\d:\d\d).*$/, " $1");
}

function stateOf(
  { expiresAt, revokedAt }: Pick<ApiKeyRecord, "expiresAt" | "revokedAt">,
  nowMs: number,
): "active" | "expired" | "revoked" {
  if (revokedAt !== undefined) return "revoked";
  const expiresAtMs = expiresAt === undefined ? undefined : parseRfc3339(expiresAt);
  return expiresAtMs !== undefined && nowMs >= expiresAtMs ? "expired" : "active";
}

async function revoke(invocation: Invocation, context: Context, given: string): Promise<number> {
  const id = idOf(given);
  const path = await pathOf(invocation, context);
  const found = (await context.keyFiles.read(path))?.find((key) => key.id === id);
  if (found === undefined) throw unknownKey(id, path);
  const question = `Revoke key ${id} (${found.name})? Clients that use it are refused within a second. This cannot be undone.`;
  await confirm(invocation, context, question, "revoked");
  const revokedAt = formatRfc3339(context.nowMs());
  const isNew = await context.keyFiles.change(path, (keys) => {
    const key = keys.find((one) => one.id === id);
    if (key === undefined) throw unknownKey(id, path);
    if (key.revokedAt !== undefined) return { keys, answer: false };
    return { keys: keys.map((one) => (one === key ? { ...one, revokedAt } : one)), answer: true };
  });
  const verb = isNew ? "revoked" : "already revoked:";
  const facts = { id, name: found.name, revoked: true };
  await tell(invocation, context, facts, verb, `key ${id} (${found.name})`);
  return EXIT.done;
}

/** A whole key is taken too: a leaked one is often all that a person has. It is never printed. */
function idOf(given: string): string {
  if (isApiKeyId(given)) return given;
  const key = parseApiKey(given);
  if (key !== undefined) return key.id;
  const isCut = given.startsWith(API_KEY_PREFIX);
  throw usageFailure(
    isCut ? "that is no whole API key" : `${quote(given)} is not the id of a key`,
    ["an id has 12 letters and digits; see: hapax tokens list"],
  );
}

function unknownKey(id: string, path: string): CommandFailure {
  return new CommandFailure(EXIT.notFound, `there is no key ${id} in ${path}`, [
    "see: hapax tokens list",
  ]);
}

const PLACES = SERVE_OPTIONS.filter(({ name }) => name === "dir" || name === "tokens-file");

export const tokensCommand: Command = {
  name: "tokens",
  summary: "make, list and revoke API keys",
  usage: [
    "hapax tokens [list] [options]",
    "hapax tokens create --name <name> --allow <actions> [options]",
    "hapax tokens revoke <id> [options]",
  ],
  positionalsMin: 0,
  positionalsMax: 2,
  options: [
    { name: "name", value: "name", help: "create: what the key is for; shown in lists and logs" },
    {
      name: "allow",
      value: "actions",
      isRepeatable: true,
      help: `create: all, or some of ${ACTIONS.join(",")}`,
    },
    {
      name: "streams",
      value: "pattern",
      isRepeatable: true,
      help: "create: only streams that match, such as 'orders/**'; may be repeated (default all)",
    },
    {
      name: "groups",
      value: "name",
      isRepeatable: true,
      help: "create: only groups of this name, a star at its end is any rest; may be repeated",
    },
    {
      name: "subscriptions",
      value: "id",
      isRepeatable: true,
      help: "create: only subscriptions of this id; may be repeated",
    },
    {
      name: "producers",
      value: "id",
      isRepeatable: true,
      help: "create: only producers of this id, so that the key can fence no other; may be repeated",
    },
    {
      name: "namespace",
      value: "path",
      help: "create: nothing outside of this path, such as /v1/stream/acme",
    },
    {
      name: "quota",
      value: "name=number",
      isRepeatable: true,
      help: "create: such as streamsMax=100 or appendsPerSecond=50; may be repeated",
    },
    {
      name: "certificate",
      value: "name",
      help: "create: for clients with a certificate of this name or SHA-256 (serve --tls-client-ca), without a secret",
    },
    { name: "expires", value: "time", help: "create: after 12h, 90d or 52w, or at a time" },
    { name: "yes", short: "y", help: "revoke: do not ask" },
    ...PLACES,
    CONFIG_OPTION,
  ],
  details: [
    "Works on the file of keys, tokens.json in the directory of the server (--dir), also while the server runs. A running",
    "server takes a change within a second. The file has no secrets, only their SHA-256. `create` prints the key to stdout,",
    "once, and everything else to stderr. Give it to programs by HAPAX_TOKEN or a file, never as an argument.",
  ],
  examples: [
    [
      "a key for one service",
      "hapax tokens create --name ci --allow append,read --streams 'orders/**'",
    ],
    [
      "for a tenant, for 90 days",
      "hapax tokens create --name acme --allow all --namespace acme --expires 90d",
    ],
    ["who has one?", "hapax tokens list"],
    ["it has leaked", "hapax tokens revoke 3kTz0aQx81Lm"],
  ],
  run: runTokens,
};
