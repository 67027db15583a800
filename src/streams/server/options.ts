/** Options of the server: plain values, resolved and checked once. */

import { KEY_DEFAULTS, type KeyOverflow } from "../core/keys.ts";
import { HapaxError } from "../../base/errors.ts";
import { OptionsCheck } from "../../base/options-check.ts";
import { LIMITS } from "../../protocol/limits.ts";
import type { MemberCheck } from "../access/check-identity.ts";
import type { Quotas } from "../access/identity.ts";
import { checkOrigins, checkPublicUrl, checkReach } from "./doors.ts";

/** Options of a server. All are optional. The unit of each is in its name. */
export interface ServerOptions {
  /** How long a long-poll waits for data, in milliseconds. Lower it if a proxy cuts idle requests earlier. Default 30,000. */
  readonly longPollMs?: number;
  /** The largest body of a request, in bytes. A larger one gets `body_too_large`. Default 16 MiB. */
  readonly bodyBytesMax?: number;
  /**
   * After how many seconds the server ends an SSE connection; its client reconnects at its offset. Lower it if a proxy
   * cuts connections earlier. Default 60.
   */
  readonly sseSecondsMax?: number;
  /** How long a live reader may take no bytes before the server cuts it, in milliseconds. Default 30,000. */
  readonly readerStallMs?: number;
  /** The most unsent bytes for one live reader. A reader beyond it reads from the store until it has caught up. Default 1 MiB. */
  readonly readerBufferBytes?: number;
  /** The most bytes of all bodies that are being received at once. Beyond it the server refuses a body. Default 256 MiB. */
  readonly bodiesBytesMax?: number;
  /** The most bytes of answers to reads that are made or sent at once. Beyond it readers wait. Default 256 MiB. */
  readonly answersBytesMax?: number;
  /** The most bytes of writes that are decided and not committed yet. Beyond it writes get `too_many`. Default 256 MiB. */
  readonly pendingBytesMax?: number;
  /**
   * The most bytes of appends that wait for an earlier append of their producer. Beyond it such appends get
   * `producer_gap` at once. Default 64 MiB.
   */
  readonly heldBytesMax?: number;
  /**
   * The most bytes of answers of transactions that are kept for retries. Beyond it the server forgets the oldest
   * answers. Default 128 MiB.
   */
  readonly outcomeBytesMax?: number;
  /**
   * Origins whose web pages may call the server, such as `https://app.example.com`, or `*` for every page. Pages of this
   * machine (`http://localhost:3000`) and of `publicUrl` always may. Default none.
   */
  readonly corsOrigins?: "*" | readonly string[];
  /** The URL at which clients reach this server. Set it if that is not the address it listens on. */
  readonly publicUrl?: string;
  /**
   * Whether the server may listen beyond this machine without authentication. Default false: every client that reaches it could
   * read, write and delete.
   */
  readonly insecurePublic?: boolean;
  /** How long `authorize` may take, in milliseconds, before the request is refused. Default 5,000. */
  readonly authorizeTimeoutMs?: number;
  /**
   * Quotas of identities that have none of their own. Each one that is left out limits nothing. Default none. They need
   * `authorize`: a server without authentication knows no identities.
   */
  readonly quotas?: Quotas;
  /** Whether webhooks may go to http://localhost. False: a subscription with such an address is refused. Default true. */
  readonly allowLoopbackWebhooks?: boolean;
  /**
   * How long a stream remembers idempotency keys, in seconds. A stream can be created with another value. Must be
   * longer than clients retry. Default 86,400.
   */
  readonly keyWindowSeconds?: number;
  /** How many idempotency keys a stream remembers. A stream can be created with another value. Default 100,000. */
  readonly keyMax?: number;
  /**
   * What happens to a new key when the stream already remembers `keyMax` keys: `evict` forgets the oldest one, `reject`
   * refuses the new one. A stream can be created with another choice. Default `evict`.
   */
  readonly keyOverflow?: KeyOverflow;
  /**
   * How long new streams keep their data, in seconds. A stream can be created with another rule, and existing streams
   * keep theirs. Default 0: for as long as they exist.
   */
  readonly retentionSeconds?: number;
  /** How many bytes of their newest data new streams keep at least. A stream can be created with another rule. Default 0: all. */
  readonly retentionBytes?: number;
  /**
   * Adds `headers.offset` to records of the State protocol in every read, as some servers do. Default false:
   * records come back byte for byte, except for readers that ask with `state-offsets=true`.
   */
  readonly stateOffsets?: boolean;
  /**
   * Appends an event to the JSON stream `__registry__` of a folder when a stream in it or below it is created, closed or deleted,
   * in the same commit. A client that may read a registry learns the names of all these streams. Default false: there are no
   * events.
   */
  readonly registry?: boolean;
  /**
   * Which requests get a log entry: `none`, `errors` (a status of 400 or more) or `all`. Default `none`.
   */
  readonly logRequests?: "none" | "errors" | "all";
  /**
   * The share of successful requests that `logRequests: "all"` logs, from 0 to 1. Refused requests are always logged.
   * Default 1.
   */
  readonly logSample?: number;
  /** Enables `/_test/inject-error`. Never in production. Default false. */
  readonly testFaults?: boolean;
}

/** The options in force, with every default filled in. */
export type ResolvedServerOptions = Required<Omit<ServerOptions, "publicUrl">> &
  Pick<ServerOptions, "publicUrl">;

const NO_QUOTAS: Quotas = Object.freeze({});

const RANGES = {
  longPollMs: [1, 600_000],
  bodyBytesMax: [1, 1024 * 1024 * 1024],
  sseSecondsMax: [1, 86_400],
  readerStallMs: [1, 3_600_000],
  readerBufferBytes: [1024, 1024 * 1024 * 1024],
  authorizeTimeoutMs: [1, 60_000],
  bodiesBytesMax: [1, Number.MAX_SAFE_INTEGER],
  answersBytesMax: [LIMITS.pageBytesMax, Number.MAX_SAFE_INTEGER],
  pendingBytesMax: [1, Number.MAX_SAFE_INTEGER],
  heldBytesMax: [1, Number.MAX_SAFE_INTEGER],
  // The answer of one transaction has up to 1.2 MiB (1,000 operations on long paths), and half of the room is always kept.
  outcomeBytesMax: [4 * 1024 * 1024, Number.MAX_SAFE_INTEGER],
  keyWindowSeconds: [1, LIMITS.keyWindowSecondsMax],
  keyMax: [1, LIMITS.keyCountMax],
  retentionSeconds: [0, LIMITS.ttlSecondsMax],
  retentionBytes: [0, Number.MAX_SAFE_INTEGER],
} as const satisfies Partial<Record<keyof ServerOptions, readonly [number, number]>>;

/** Who can reach a server, and whether it asks them who they are. */
export interface ServerReach {
  /** Undefined: a platform brings the requests, from everywhere. */
  readonly address: string | undefined;
  readonly hasAuthentication: boolean;
  /** Checks the option `quotas`. Undefined: the server has no identities. */
  readonly checkQuotas?: MemberCheck | undefined;
}

const THIS_MACHINE: ServerReach = { address: "127.0.0.1", hasAuthentication: false };

/** All problems are reported together, each with the field, the value and what is allowed. */
export function resolveServerOptions(
  options: ServerOptions = {},
  // One object: a default of `address` alone would take the place of an undefined one.
  { address, hasAuthentication, checkQuotas }: ServerReach = THIS_MACHINE,
): ResolvedServerOptions {
  const resolved: ResolvedServerOptions = Object.freeze({
    longPollMs: options.longPollMs ?? LIMITS.longPollMs,
    bodyBytesMax: options.bodyBytesMax ?? LIMITS.bodyBytesMax,
    sseSecondsMax: options.sseSecondsMax ?? LIMITS.sseSecondsMax,
    readerStallMs: options.readerStallMs ?? LIMITS.readerStallMs,
    readerBufferBytes: options.readerBufferBytes ?? LIMITS.readerBufferBytesMax,
    bodiesBytesMax: options.bodiesBytesMax ?? LIMITS.bodiesBytesMax,
    answersBytesMax: options.answersBytesMax ?? LIMITS.answersBytesMax,
    pendingBytesMax: options.pendingBytesMax ?? LIMITS.pendingBytesMax,
    heldBytesMax: options.heldBytesMax ?? LIMITS.heldBytesMax,
    outcomeBytesMax: options.outcomeBytesMax ?? LIMITS.outcomeBytesMax,
    corsOrigins: options.corsOrigins ?? [],
    ...(options.publicUrl === undefined ? {} : { publicUrl: options.publicUrl }),
    insecurePublic: options.insecurePublic ?? false,
    authorizeTimeoutMs: options.authorizeTimeoutMs ?? LIMITS.authorizeTimeoutMs,
    quotas: options.quotas ?? NO_QUOTAS,
    allowLoopbackWebhooks: options.allowLoopbackWebhooks ?? true,
    keyWindowSeconds: options.keyWindowSeconds ?? KEY_DEFAULTS.windowSeconds,
    keyMax: options.keyMax ?? KEY_DEFAULTS.countMax,
    keyOverflow: options.keyOverflow ?? KEY_DEFAULTS.overflow,
    retentionSeconds: options.retentionSeconds ?? 0,
    retentionBytes: options.retentionBytes ?? 0,
    stateOffsets: options.stateOffsets ?? false,
    registry: options.registry ?? false,
    logRequests: options.logRequests ?? "none",
    logSample: options.logSample ?? 1,
    testFaults: options.testFaults ?? false,
  });
  const check = new OptionsCheck(HapaxError);
  for (const [name, [min, max]] of Object.entries(RANGES)) {
    const value = resolved[name as keyof typeof RANGES];
    if (!Number.isSafeInteger(value) || value < min || value > max) {
      check.problem(`${name}=${value} is not a whole number from ${min} to ${max}`);
    }
  }
  if (resolved.keyOverflow !== "evict" && resolved.keyOverflow !== "reject") {
    check.problem(`keyOverflow=${String(resolved.keyOverflow)} is neither evict nor reject`);
  }
  const problem = (text: string): void => {
    check.problem(text);
  };
  if (checkQuotas !== undefined) checkQuotas(resolved.quotas, "quotas", problem);
  else if (options.quotas !== undefined) problem("quotas needs authorize, and the part `access`");
  checkRoom(resolved, check);
  checkLog(resolved, check);
  checkOrigins(resolved.corsOrigins, check);
  checkPublicUrl(resolved.publicUrl, check);
  if (!resolved.insecurePublic && !hasAuthentication) checkReach(address, check);
  check.end();
  return resolved;
}

/** A body that is allowed must also fit: otherwise no retry of it would ever succeed. */
function checkRoom(resolved: ResolvedServerOptions, check: OptionsCheck): void {
  const { bodyBytesMax } = resolved;
  for (const name of ["bodiesBytesMax", "pendingBytesMax"] as const) {
    if (resolved[name] < bodyBytesMax) {
      check.problem(`${name}=${resolved[name]} is less than bodyBytesMax=${bodyBytesMax}`);
    }
  }
}

function checkLog(
  { logRequests, logSample }: Pick<ResolvedServerOptions, "logRequests" | "logSample">,
  check: OptionsCheck,
): void {
  if (!["none", "errors", "all"].includes(logRequests)) {
    check.problem(`logRequests=${String(logRequests)} is none of none, errors, all`);
  }
  if (!(logSample >= 0 && logSample <= 1)) {
    check.problem(`logSample=${logSample} is not a number from 0 to 1`);
  }
}
