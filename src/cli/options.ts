/**
 * Options of `hapax serve`: a flag, else the environment, else the default. Every problem is found before
 * any is reported, each with its field, its value and what is allowed.
 */

import { isIP } from "node:net";

import { KEY_DEFAULTS, type KeyOverflow } from "../streams/core/keys.ts";
import { isLoopback, isOrigin, isPublicUrl } from "../protocol/origin.ts";
import { withoutLastSlashes } from "../protocol/slashes.ts";
import { LIMITS } from "../protocol/limits.ts";
import { quote } from "./arguments.ts";
import type { Invocation, OptionSpec } from "./command.ts";
import type { Context, ServeOptions } from "./context.ts";
import { usageFailure } from "./failure.ts";

const DIRECTORY_DEFAULT = "./hapax-data";

export const SERVE_OPTIONS: readonly OptionSpec[] = [
  {
    name: "host",
    value: "address",
    env: "HAPAX_HOST",
    help: "address to listen on (default 127.0.0.1)",
  },
  {
    name: "port",
    value: "number",
    env: "HAPAX_PORT",
    help: "port to listen on, 0 for any free one (default 4437)",
  },
  {
    name: "dir",
    value: "directory",
    env: "HAPAX_DIR",
    help: `directory for the streams (default ${DIRECTORY_DEFAULT})`,
  },
  {
    name: "durability",
    value: "fsync|os",
    env: "HAPAX_DURABILITY",
    help: "fsync survives a power cut, os only the end of the process (default fsync)",
  },
  {
    name: "memory",
    env: "HAPAX_MEMORY",
    help: "keep streams in memory: they are gone when the process ends",
  },
  {
    name: "long-poll-ms",
    value: "ms",
    env: "HAPAX_LONG_POLL_MS",
    help: `how long a long-poll waits, in ms (default ${String(LIMITS.longPollMs)})`,
  },
  {
    name: "body-bytes-max",
    value: "bytes",
    env: "HAPAX_BODY_BYTES_MAX",
    help: `largest append, in bytes (default ${String(LIMITS.bodyBytesMax)})`,
  },
  {
    name: "sse-seconds-max",
    value: "seconds",
    env: "HAPAX_SSE_SECONDS_MAX",
    help: `the server ends an SSE connection after this many seconds (default ${String(LIMITS.sseSecondsMax)})`,
  },
  {
    name: "key-window",
    value: "seconds",
    env: "HAPAX_KEY_WINDOW",
    help: `for how many seconds streams remember keys (default ${String(KEY_DEFAULTS.windowSeconds)})`,
  },
  {
    name: "key-max",
    value: "count",
    env: "HAPAX_KEY_MAX",
    help: `how many keys a stream remembers (default ${String(KEY_DEFAULTS.countMax)})`,
  },
  {
    name: "key-overflow",
    value: "evict|reject",
    env: "HAPAX_KEY_OVERFLOW",
    help: `when there are more: forget the oldest, or refuse (default ${KEY_DEFAULTS.overflow})`,
  },
  {
    name: "public-url",
    value: "url",
    env: "HAPAX_PUBLIC_URL",
    help: "the URL that clients use for this server, e.g. behind a proxy",
  },
  {
    name: "tls-cert",
    value: "file",
    env: "HAPAX_TLS_CERT",
    help: "speak HTTPS with this certificate (PEM, with its chain); read again when it changes",
  },
  {
    name: "tls-key",
    value: "file",
    env: "HAPAX_TLS_KEY",
    help: "the private key of the certificate (PEM); only its owner may read it",
  },
  {
    name: "tls-client-ca",
    value: "file",
    env: "HAPAX_TLS_CLIENT_CA",
    help: "refuse every connection without a client certificate of these authorities (PEM)",
  },
  {
    name: "cors-origin",
    value: "origin",
    env: "HAPAX_CORS_ORIGINS",
    isRepeatable: true,
    help: "web pages of this origin may call the server, * for all; may be repeated (default: pages of this machine)",
  },
  {
    name: "insecure-public",
    env: "HAPAX_INSECURE_PUBLIC",
    help: "allow an address beyond this machine, although there is no authentication",
  },
  {
    name: "state-offsets",
    env: "HAPAX_STATE_OFFSETS",
    help: "add headers.offset to records of the State protocol in every read",
  },
  {
    name: "no-loopback-webhooks",
    env: "HAPAX_NO_LOOPBACK_WEBHOOKS",
    help: "refuse webhooks to localhost; set it if you do not control all clients",
  },
  {
    name: "test-faults",
    env: "HAPAX_TEST_FAULTS",
    help: "enable /_test/inject-error; for tests only",
  },
];

interface Range {
  readonly min: number;
  readonly max: number;
  readonly fallback: number;
}

const RANGES: Readonly<Record<string, Range>> = {
  port: { min: 0, max: 65_535, fallback: 4437 },
  "long-poll-ms": { min: 1, max: 600_000, fallback: LIMITS.longPollMs },
  "body-bytes-max": { min: 1, max: LIMITS.bodiesBytesMax, fallback: LIMITS.bodyBytesMax },
  "sse-seconds-max": { min: 1, max: 86_400, fallback: LIMITS.sseSecondsMax },
  "key-window": { min: 1, max: LIMITS.keyWindowSecondsMax, fallback: KEY_DEFAULTS.windowSeconds },
  "key-max": { min: 1, max: LIMITS.keyCountMax, fallback: KEY_DEFAULTS.countMax },
};

/** One option as it was given, and by what name to speak of it. */
interface Given {
  readonly name: string;
  readonly text: string;
}

export function resolveServeOptions(invocation: Invocation, env: Context["env"]): ServeOptions {
  const problems: string[] = [];
  const given = (name: string): Given | undefined => giveOption(invocation, env, name);
  const count = (name: string): number => parseRange(name, given(name), problems);
  const dir = checkDirectory(given("dir"), given("memory"), problems);
  const publicUrl = checkPublicUrl(given("public-url"), problems);
  const tls = checkTls(given, problems);
  const options: ServeOptions = {
    host: checkHost(given("host"), problems),
    port: count("port"),
    longPollMs: count("long-poll-ms"),
    bodyBytesMax: count("body-bytes-max"),
    sseSecondsMax: count("sse-seconds-max"),
    keyWindowSeconds: count("key-window"),
    keyMax: count("key-max"),
    keyOverflow: checkOverflow(given("key-overflow"), problems),
    corsOrigins: checkCorsOrigins(invocation, env, problems),
    stateOffsets: parseSwitch(given("state-offsets"), problems),
    insecurePublic: parseSwitch(given("insecure-public"), problems),
    testFaults: parseSwitch(given("test-faults"), problems),
    allowLoopbackWebhooks: !parseSwitch(given("no-loopback-webhooks"), problems),
    durability: checkDurability(given("durability"), problems),
    ...(dir === undefined ? {} : { dir }),
    ...(publicUrl === undefined ? {} : { publicUrl }),
    ...(tls === undefined ? {} : { tls }),
  };
  if (!isLoopback(options.host) && !options.insecurePublic && problems.length === 0) {
    problems.push(
      `--host is ${quote(options.host)}; allowed: a loopback address such as 127.0.0.1, because there ` +
        "is no authentication yet and every client that reaches this address can read, write and delete. " +
        "Put a proxy that authenticates in front, or add --insecure-public if you trust the whole network",
    );
  }
  if (problems.length > 0) {
    const first = problems.length === 1 ? "an option is" : `${String(problems.length)} options are`;
    throw usageFailure(`${first} not valid`, problems);
  }
  return options;
}

/** An empty variable counts as absent, as in most tools: `HAPAX_DIR= hapax serve`. */
function giveOption(invocation: Invocation, env: Context["env"], name: string): Given | undefined {
  const flag = invocation.value(name);
  if (flag !== undefined) return { name: `--${name}`, text: flag };
  const variable = SERVE_OPTIONS.find((option) => option.name === name)?.env ?? "";
  const text = env[variable] ?? "";
  return text === "" ? undefined : { name: variable, text };
}

function parseRange(name: string, given: Given | undefined, problems: string[]): number {
  const range = RANGES[name] ?? { min: 0, max: 0, fallback: 0 };
  if (given === undefined) return range.fallback;
  const value = /^\d{1,15}$/.test(given.text) ? Number(given.text) : Number.NaN;
  if (value >= range.min && value <= range.max) return value;
  const allowed = `a whole number from ${String(range.min)} to ${String(range.max)}`;
  problems.push(`${given.name} is ${quote(given.text)}; allowed: ${allowed}`);
  return range.fallback;
}

/** Undefined: in memory. */
function checkDirectory(
  dir: Given | undefined,
  memory: Given | undefined,
  problems: string[],
): string | undefined {
  if (!parseSwitch(memory, problems)) return dir?.text ?? DIRECTORY_DEFAULT;
  if (dir !== undefined) problems.push(`${dir.name} and --memory exclude each other`);
  return undefined;
}

function checkDurability(given: Given | undefined, problems: string[]): "fsync" | "os" {
  if (given === undefined || given.text === "fsync") return "fsync";
  if (given.text === "os") return "os";
  problems.push(`${given.name} is ${quote(given.text)}; allowed: fsync, os`);
  return "fsync";
}

function checkOverflow(given: Given | undefined, problems: string[]): KeyOverflow {
  if (given === undefined) return KEY_DEFAULTS.overflow;
  if (given.text === "evict" || given.text === "reject") return given.text;
  problems.push(`${given.name} is ${quote(given.text)}; allowed: evict, reject`);
  return KEY_DEFAULTS.overflow;
}

function parseSwitch(given: Given | undefined, problems: string[]): boolean {
  if (given === undefined) return false;
  const text = given.text.toLowerCase();
  if (text === "1" || text === "true") return true;
  if (text === "0" || text === "false") return false;
  problems.push(`${given.name} is ${quote(given.text)}; allowed: 1, true, 0, false`);
  return false;
}

function checkHost(given: Given | undefined, problems: string[]): string {
  if (given === undefined) return "127.0.0.1";
  // Brackets belong to URLs; here they can only mean the address inside.
  const host = given.text.replace(/^\[(.*)\]$/, "$1");
  const isName = /^[a-z\d]([a-z\d.-]{0,252})$/i.test(host);
  if (isIP(host) === 0 && !isName) {
    problems.push(`${given.name} is ${quote(given.text)}; allowed: an IP address or a host name`);
  }
  return host;
}

function checkPublicUrl(given: Given | undefined, problems: string[]): string | undefined {
  if (given === undefined) return undefined;
  if (!isPublicUrl(given.text)) {
    const allowed = "an http or https URL without password, query and fragment";
    problems.push(`${given.name} is ${quote(given.text)}; allowed: ${allowed}`);
    return undefined;
  }
  return withoutLastSlashes(new URL(given.text).href);
}

/** The server checks the files themselves. */
function checkTls(
  given: (name: string) => Given | undefined,
  problems: string[],
): ServeOptions["tls"] {
  const [cert, key, clientCa] = [given("tls-cert"), given("tls-key"), given("tls-client-ca")];
  if (cert !== undefined && key !== undefined) {
    const files = { certFile: cert.text, keyFile: key.text };
    return clientCa === undefined ? files : { ...files, clientCaFile: clientCa.text };
  }
  const lonely = cert ?? key ?? clientCa;
  if (lonely !== undefined) {
    problems.push(
      `${lonely.name} needs ${cert === undefined ? "--tls-cert" : "--tls-key"} as well`,
    );
  }
  return undefined;
}

/** The flags, else the variable with commas between its origins. */
function checkCorsOrigins(
  invocation: Invocation,
  env: Context["env"],
  problems: string[],
): "*" | readonly string[] {
  const flags = invocation.values("cors-origin");
  const variable = (env["HAPAX_CORS_ORIGINS"] ?? "").split(",");
  const name = flags.length > 0 ? "--cors-origin" : "HAPAX_CORS_ORIGINS";
  const origins = (flags.length > 0 ? flags : variable)
    .map((text) => text.trim())
    .filter((text) => text !== "");
  if (origins.includes("*")) return "*";
  for (const origin of origins) {
    if (isOrigin(origin)) continue;
    const allowed = "an origin such as https://app.example.com, or * for every page";
    problems.push(`${name} is ${quote(origin)}; allowed: ${allowed}`);
  }
  return origins;
}
