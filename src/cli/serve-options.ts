/**
 * The options of `hapax serve`, one row each. Flags, variables, members of the file, the schema, the help, `hapax config check` and
 * the report of a reload are made from this table. Its type demands a row for every member of `ServeOptions`, and no other.
 */

import { LIMITS } from "../protocol/limits.ts";
import { withoutQuery } from "../protocol/origin.ts";
import { QUOTAS } from "../streams/access/identity.ts";
import { KEY_DEFAULTS } from "../streams/core/keys.ts";
import type { OptionSpec } from "./command.ts";
import type { ServeOptions } from "./context.ts";
import {
  DATABASE_URL,
  HOST,
  HTTP_URL,
  KEY_SET,
  oneOf,
  type OptionKind,
  ORIGINS,
  PATH,
  SHARE,
  TEXT,
  TEXTS,
  QUOTA_LIST,
  toggle,
  withoutPassword,
  wholeNumber,
} from "./option-kinds.ts";

export interface OptionRow<Value> {
  readonly flag: string;
  readonly env: string;
  /** What the value of the flag is, in words for the help; absent for a switch. */
  readonly value?: string;
  readonly isRepeatable?: boolean;
  readonly help: string;
  readonly kind: OptionKind<Value>;
  /** The value where none is given. Undefined: the option is then absent. */
  readonly fallback: Value | undefined;
  /** Whether SIGHUP puts a new value in force, or a restart. The server decides it; a test holds the two together. */
  readonly reload: "live" | "restart";
  /** The value is never printed, also not in a failure. */
  readonly isSecret?: boolean;
  /** How a value is printed, where a part of it may be a secret. */
  readonly show?: (value: string) => string;
}

/** The members of a configuration. `memory` and `store` become a missing `dir`, and the three files become `tls`. A secret is no option. */
export type ServeConfiguration = Required<Omit<ServeOptions, "tls" | "serverToken">> & {
  readonly memory: boolean;
  readonly tlsCert: string;
  readonly tlsKey: string;
  readonly tlsClientCa: string;
};

export const SERVE_TABLE: {
  readonly [Member in keyof ServeConfiguration]: OptionRow<ServeConfiguration[Member]>;
} = {
  host: {
    flag: "host",
    env: "HAPAX_HOST",
    value: "address",
    help: "address to listen on",
    kind: HOST,
    fallback: "127.0.0.1",
    reload: "restart",
  },
  port: {
    flag: "port",
    env: "HAPAX_PORT",
    value: "number",
    help: "port to listen on, 0 for any free one",
    kind: wholeNumber(0, 65_535),
    fallback: 4437,
    reload: "restart",
  },
  dir: {
    flag: "dir",
    env: "HAPAX_DIR",
    value: "directory",
    help: "directory for the streams",
    kind: PATH,
    fallback: "./hapax-data",
    reload: "restart",
  },
  durability: {
    flag: "durability",
    env: "HAPAX_DURABILITY",
    value: "replicated|fsync|os",
    help: "fsync survives a power cut, os only the end of the process; with --store also replicated (its default): the loss of the primary",
    kind: oneOf("replicated", "fsync", "os"),
    fallback: "fsync",
    reload: "restart",
  },
  store: {
    flag: "store",
    env: "HAPAX_STORE",
    value: "url",
    help: "keep streams in this PostgreSQL (postgres://user@host,host/database) and not in a directory; put the password into HAPAX_STORE or PGPASSWORD",
    kind: DATABASE_URL,
    show: withoutPassword,
    fallback: undefined,
    reload: "restart",
  },
  takeover: {
    flag: "takeover",
    env: "HAPAX_TAKEOVER",
    value: "refuse|wait",
    help: "with --store, if another server owns the streams: refuse to start, or wait until it is gone",
    kind: oneOf("refuse", "wait"),
    fallback: "refuse",
    reload: "restart",
  },
  replication: {
    flag: "replication",
    env: "HAPAX_REPLICATION",
    value: "standby|storage",
    help: "with --store: storage if the disks below PostgreSQL are replicated, so that no synchronous standby is needed",
    kind: oneOf("standby", "storage"),
    fallback: "standby",
    reload: "restart",
  },
  node: {
    flag: "node",
    env: "HAPAX_NODE",
    value: "name",
    help: "with --store: the name of this server in the database, unique among those that use it (default random)",
    kind: TEXT,
    fallback: undefined,
    reload: "restart",
  },
  peers: {
    flag: "peers",
    env: "HAPAX_PEERS",
    value: "host:port",
    help: "with --store: be a node of a cluster, and listen here for its other nodes; no client may reach this port",
    kind: TEXT,
    fallback: undefined,
    reload: "restart",
  },
  peerKeyFile: {
    flag: "peer-key-file",
    env: "HAPAX_PEER_KEY_FILE",
    value: "file",
    help: "with --peers: the file with the secret that all nodes share, which only its owner may read",
    kind: PATH,
    fallback: undefined,
    reload: "restart",
  },
  advertise: {
    flag: "advertise",
    env: "HAPAX_ADVERTISE",
    value: "url",
    help: "with --peers: where clients and other nodes reach this one (default the address that it listens on)",
    kind: HTTP_URL,
    fallback: undefined,
    reload: "restart",
  },
  warmCopies: {
    flag: "no-warm-copies",
    env: "HAPAX_NO_WARM_COPIES",
    help: "with --peers: keep no copy in memory of what this node would own next; a node that ends is then replaced more slowly",
    kind: toggle("opposite"),
    fallback: true,
    reload: "restart",
  },
  memory: {
    flag: "memory",
    env: "HAPAX_MEMORY",
    help: "keep streams in memory: they are gone when the process ends",
    kind: toggle(),
    fallback: false,
    reload: "restart",
  },
  tokensFile: {
    flag: "tokens-file",
    env: "HAPAX_TOKENS_FILE",
    value: "file",
    help: "the file of API keys, which must exist (default tokens.json in the directory, if there is one)",
    kind: PATH,
    fallback: undefined,
    reload: "restart",
  },
  requireAuth: {
    flag: "require-auth",
    env: "HAPAX_REQUIRE_AUTH",
    help: "refuse to start if there is no file of keys, no HAPAX_SERVER_TOKEN, no --jwt-jwks and no --signing-keys-file",
    kind: toggle(),
    fallback: false,
    reload: "restart",
  },
  longPollMs: {
    flag: "long-poll-ms",
    env: "HAPAX_LONG_POLL_MS",
    value: "ms",
    help: "how long a long-poll waits, in ms",
    kind: wholeNumber(1, 600_000),
    fallback: LIMITS.longPollMs,
    reload: "live",
  },
  bodyBytesMax: {
    flag: "body-bytes-max",
    env: "HAPAX_BODY_BYTES_MAX",
    value: "bytes",
    help: "largest append, in bytes",
    kind: wholeNumber(1, LIMITS.bodiesBytesMax),
    fallback: LIMITS.bodyBytesMax,
    reload: "live",
  },
  sseSecondsMax: {
    flag: "sse-seconds-max",
    env: "HAPAX_SSE_SECONDS_MAX",
    value: "seconds",
    help: "the server ends an SSE connection after this many seconds",
    kind: wholeNumber(1, 86_400),
    fallback: LIMITS.sseSecondsMax,
    reload: "live",
  },
  keyWindowSeconds: {
    flag: "key-window",
    env: "HAPAX_KEY_WINDOW",
    value: "seconds",
    help: "for how many seconds streams remember keys",
    kind: wholeNumber(1, LIMITS.keyWindowSecondsMax),
    fallback: KEY_DEFAULTS.windowSeconds,
    reload: "restart",
  },
  keyMax: {
    flag: "key-max",
    env: "HAPAX_KEY_MAX",
    value: "count",
    help: "how many keys a stream remembers",
    kind: wholeNumber(1, LIMITS.keyCountMax),
    fallback: KEY_DEFAULTS.countMax,
    reload: "restart",
  },
  keyOverflow: {
    flag: "key-overflow",
    env: "HAPAX_KEY_OVERFLOW",
    value: "evict|reject",
    help: "when there are more: forget the oldest, or refuse",
    kind: oneOf("evict", "reject"),
    fallback: KEY_DEFAULTS.overflow,
    reload: "restart",
  },
  retentionSeconds: {
    flag: "retention-seconds",
    env: "HAPAX_RETENTION_SECONDS",
    value: "seconds",
    help: "for how many seconds new streams keep their data; 0: always",
    kind: wholeNumber(0, LIMITS.ttlSecondsMax),
    fallback: 0,
    reload: "restart",
  },
  retentionBytes: {
    flag: "retention-bytes",
    env: "HAPAX_RETENTION_BYTES",
    value: "bytes",
    help: "how many bytes of their newest data new streams keep; 0: all",
    kind: wholeNumber(0, Number.MAX_SAFE_INTEGER),
    fallback: 0,
    reload: "restart",
  },
  publicUrl: {
    flag: "public-url",
    env: "HAPAX_PUBLIC_URL",
    value: "url",
    help: "the URL that clients use for this server, e.g. behind a proxy",
    kind: HTTP_URL,
    fallback: undefined,
    reload: "restart",
  },
  tlsCert: {
    flag: "tls-cert",
    env: "HAPAX_TLS_CERT",
    value: "file",
    help: "speak HTTPS with this certificate (PEM, with its chain); read again when it changes",
    kind: PATH,
    fallback: undefined,
    reload: "restart",
  },
  tlsKey: {
    flag: "tls-key",
    env: "HAPAX_TLS_KEY",
    value: "file",
    help: "the private key of the certificate (PEM); only its owner may read it",
    kind: PATH,
    fallback: undefined,
    reload: "restart",
  },
  tlsClientCa: {
    flag: "tls-client-ca",
    env: "HAPAX_TLS_CLIENT_CA",
    value: "file",
    help: "refuse every connection without a client certificate of these authorities (PEM)",
    kind: PATH,
    fallback: undefined,
    reload: "restart",
  },
  jwtJwks: {
    flag: "jwt-jwks",
    env: "HAPAX_JWT_JWKS",
    value: "file|url",
    help: "accept tokens (JWT) that are signed with these keys (JWKS); read again when they change",
    kind: KEY_SET,
    show: withoutQuery,
    fallback: undefined,
    reload: "restart",
  },
  jwtIssuer: {
    flag: "jwt-issuer",
    env: "HAPAX_JWT_ISSUER",
    value: "text",
    help: "the issuer of the tokens, exactly as it is in their claim iss",
    kind: TEXT,
    fallback: undefined,
    reload: "restart",
  },
  jwtAudience: {
    flag: "jwt-audience",
    env: "HAPAX_JWT_AUDIENCE",
    value: "text",
    isRepeatable: true,
    help: "what the tokens must have in their claim aud; may be repeated, one of them is enough",
    kind: TEXTS,
    fallback: undefined,
    reload: "restart",
  },
  jwtClaim: {
    flag: "jwt-claim",
    env: "HAPAX_JWT_CLAIM",
    value: "text",
    help: "the claim with the grants",
    kind: TEXT,
    fallback: "hapax",
    reload: "restart",
  },
  jwtLeewaySeconds: {
    flag: "jwt-leeway",
    env: "HAPAX_JWT_LEEWAY",
    value: "seconds",
    help: "how many seconds the clocks of provider and server may differ",
    kind: wholeNumber(0, 600),
    fallback: 30,
    reload: "restart",
  },
  signingKeysFile: {
    flag: "signing-keys-file",
    env: "HAPAX_SIGNING_KEYS_FILE",
    value: "file",
    help: "accept URLs that are signed with these keys (see: hapax help sign-url); read again when it changes",
    kind: PATH,
    fallback: undefined,
    reload: "restart",
  },
  corsOrigins: {
    flag: "cors-origin",
    env: "HAPAX_CORS_ORIGINS",
    value: "origin",
    isRepeatable: true,
    help: "web pages of this origin may call the server, * for all; may be repeated (default: pages of this machine)",
    kind: ORIGINS,
    fallback: [],
    reload: "live",
  },
  insecurePublic: {
    flag: "insecure-public",
    env: "HAPAX_INSECURE_PUBLIC",
    help: "allow an address beyond this machine, although there is no authentication",
    kind: toggle(),
    fallback: false,
    reload: "restart",
  },
  quotas: {
    flag: "quota",
    env: "HAPAX_QUOTAS",
    value: "name=number",
    isRepeatable: true,
    help: `quota of every identity without its own, e.g. appendsPerSecond=1000; may be repeated: ${QUOTAS.join(", ")}`,
    kind: QUOTA_LIST,
    fallback: {},
    reload: "live",
  },
  stateOffsets: {
    flag: "state-offsets",
    env: "HAPAX_STATE_OFFSETS",
    help: "add headers.offset to records of the State protocol in every read",
    kind: toggle(),
    fallback: false,
    reload: "live",
  },
  registry: {
    flag: "registry",
    env: "HAPAX_REGISTRY",
    help: "append an event to the stream __registry__ of a folder when a stream in or below it is created, closed or deleted",
    kind: toggle(),
    fallback: false,
    reload: "restart",
  },
  allowLoopbackWebhooks: {
    flag: "no-loopback-webhooks",
    env: "HAPAX_NO_LOOPBACK_WEBHOOKS",
    help: "refuse webhooks to localhost; set it if you do not control all clients",
    kind: toggle("opposite"),
    fallback: true,
    reload: "restart",
  },
  logFormat: {
    flag: "log-format",
    env: "HAPAX_LOG_FORMAT",
    value: "auto|text|json",
    help: "how lines on stderr look; auto is text on a terminal and json elsewhere",
    kind: oneOf("auto", "text", "json"),
    fallback: "auto",
    reload: "restart",
  },
  logLevel: {
    flag: "log-level",
    env: "HAPAX_LOG_LEVEL",
    value: "error|warn|info|debug",
    help: "write entries of this level and above",
    kind: oneOf("error", "warn", "info", "debug"),
    fallback: "info",
    reload: "restart",
  },
  logRequests: {
    flag: "log-requests",
    env: "HAPAX_LOG_REQUESTS",
    value: "none|errors|all",
    help: "write a line for each request; errors: for those with a status of 400 or more",
    kind: oneOf("none", "errors", "all"),
    fallback: "none",
    reload: "live",
  },
  logSample: {
    flag: "log-sample",
    env: "HAPAX_LOG_SAMPLE",
    value: "share",
    help: "with --log-requests all: the share of successful requests that is written, from 0 to 1",
    kind: SHARE,
    fallback: 1,
    reload: "live",
  },
  auditFile: {
    flag: "audit-file",
    env: "HAPAX_AUDIT_FILE",
    value: "file",
    help: "append audit entries to this file, one JSON line each, instead of stderr; SIGHUP opens it anew",
    kind: PATH,
    fallback: undefined,
    reload: "restart",
  },
  testFaults: {
    flag: "test-faults",
    env: "HAPAX_TEST_FAULTS",
    help: "enable /_test/inject-error; for tests only",
    kind: toggle(),
    fallback: false,
    reload: "restart",
  },
};

export const CONFIG_OPTION: OptionSpec = {
  name: "config",
  value: "file",
  env: "HAPAX_CONFIG",
  help: "configuration file in JSON (default hapax.config.json, if there is one)",
};

/** The flags of `serve` and of `config check`. */
export const SERVE_OPTIONS: readonly OptionSpec[] = [
  CONFIG_OPTION,
  ...Object.values<OptionRow<unknown>>(SERVE_TABLE).map(flagOf),
];

function flagOf({
  flag,
  env,
  value,
  isRepeatable,
  help,
  fallback,
}: OptionRow<unknown>): OptionSpec {
  const isPlain = typeof fallback === "string" || typeof fallback === "number";
  return {
    name: flag,
    env,
    ...(value === undefined ? {} : { value }),
    ...(isRepeatable === undefined ? {} : { isRepeatable }),
    help: isPlain ? `${help} (default ${String(fallback)})` : help,
  };
}
