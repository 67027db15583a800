/**
 * Puts a server together: a store, the engine over it, the parts that the program has chosen, and one function from a request to its
 * answer.
 */

import type { Clock } from "../../base/clock.ts";
import type { Authorize } from "../access/identity.ts";
import { HapaxError } from "../../base/errors.ts";
import type { Courier } from "../courier.ts";
import { type Digest, webDigest } from "../../base/digest.ts";
import type { RetentionRule } from "../core/trim.ts";
import type { Defer } from "../engine/commit.ts";
import { Engine } from "../engine/engine.ts";
import type { Random } from "../../base/random.ts";
import { AnswerBudget } from "./answer-budget.ts";
import type { LoadDashboard } from "./dashboard.ts";
import { Doors } from "./doors.ts";
import { Drain } from "./drain.ts";
import type { Faults } from "./faults.ts";
import { OPEN_GATE } from "./gate.ts";
import type { Exchange, LiveSink, BridgedPlace, ServerAnswer } from "./exchange.ts";
import { type Decompress, NO_DECODING } from "./decoding.ts";
import type { Compress } from "./policy.ts";
import type { PartsHolder, ServerParts } from "./parts.ts";
import type { DecideReload, Reloaded } from "./reload.ts";
import { RequestIds } from "./request-ids.ts";
import { RouteBook } from "./route-book.ts";
import { createRouter } from "./router.ts";
import { type Wings, withoutPart } from "../engine/wings.ts";
import type { ServerPart } from "./server-part.ts";
import { resolveServerOptions, type ResolvedServerOptions, type ServerOptions } from "./options.ts";
import { resumeReader } from "./sse.ts";
import { createQuietWatch, type Watch } from "./watched.ts";
import type { AuditEntry, Log } from "../log.ts";
import type { RuleHeaders } from "../../protocol/rules.ts";
import type { Store } from "../store.ts";
import type { Tracer } from "../tracer.ts";
import { isJsonRecordStart, jsonRecordEnd, jsonRecordEndFrom } from "../../protocol/json.ts";

/** The parts of a server. The server owns the store and closes it. */
export interface ServerComponents {
  readonly store: Store;
  readonly clock: Clock;
  /**
   * The clock for timers that run while no request does: expiry, windows of keys, retries of webhooks. Default:
   * `clock`.
   */
  readonly longClock?: Clock | undefined;
  readonly random: Random;
  /** Sends webhooks. Default: none is sent. */
  readonly courier?: Courier | undefined;
  /** When a group commit begins. Default: at the end of the microtask. See `Defer`. */
  readonly defer?: Defer;
  /** SHA-256. Default: that of the web platform, which is asynchronous. */
  readonly digest?: Digest;
  /** Compresses answers with gzip for clients that accept it. Default: no answer is compressed. */
  readonly compress?: Compress;
  /** Decodes compressed bodies of requests. Default: they are refused with `unsupported_encoding`. */
  readonly decompress?: Decompress;
  /** Loads the files of the dashboard. Default: there is none, and `/` answers text to browsers too. */
  readonly dashboard?: LoadDashboard | undefined;
  /**
   * The budget of memory for answers. Pass one to share it between several servers of a process. Default: a
   * budget of its own.
   */
  readonly answers?: AnswerBudget;
  /** Takes what the server writes about requests. Default: nothing is written. */
  readonly log?: Log;
  /** Takes one entry for each act that an operator must be able to find again. Default: they go to `log`. */
  readonly onAudit?: (entry: AuditEntry) => void;
  /** Begins a span for each request and each webhook. Default: there are none. */
  readonly tracer?: Tracer;
  /**
   * Finds out who sends a request, and what they may do. Default: there is no authentication, and every client may do everything.
   */
  readonly authorize?: Authorize | undefined;
  /**
   * The address that the runtime listens on, such as `127.0.0.1`. Undefined: a platform brings the requests. Beyond this machine
   * a server needs `authorize`, or the option `insecurePublic`.
   */
  readonly address: string | undefined;
  /**
   * Throws the refusal of a stream that a transaction must not create here, for runtimes with many servers. Default: every stream may be
   * created here.
   */
  readonly checkPlace?: ServerParts["checkPlace"];
  /**
   * Whether a registry directly below `/v1/stream/` gets events. Default true. Set it to false if other servers have some of
   * these streams.
   */
  readonly hasRootRegistry?: boolean;
  /** The base URL at which webhooks reach this server, without a slash at the end. */
  readonly publicUrl: () => string;
  /** Called with each error that is a bug or a failed part, such as a disk, and never with refusals. */
  readonly onFault: (error: unknown) => void;
}

/** The members of a server that the sockets of a runtime use. */
export type RequestServer = Pick<
  HapaxServer,
  "options" | "isDraining" | "handle" | "nextRequestId" | "drain"
>;

/** A server without its sockets. A runtime passes requests to it and sends its answers. */
export interface HapaxServer {
  /** The options in force. */
  readonly options: ResolvedServerOptions;
  readonly engine: Engine;
  readonly isDraining: boolean;
  /** Answers one request, with all headers except those of the connection. Never rejects because of a client. */
  handle(exchange: Exchange): Promise<ServerAnswer>;
  /** A new value for `X-Request-Id`, for a runtime that refuses bytes that are no request. */
  nextRequestId(): string;
  /**
   * Applies new options without a restart where that is safe. Returns which changed and which need a restart. Give all options,
   * as to `createServer`. A request keeps the options that it began with, also a live reader. Throws `invalid_options`, and then
   * changes nothing.
   */
  reload(options: ServerOptions): Reloaded;
  /**
   * Goes on with a live reader that a server on the same store began. For runtimes that lose their memory between two requests
   * and keep their connections. `place` is the last one that the first server passed to the `bridge` of its sink.
   */
  resumeReader(place: BridgedPlace, sink: LiveSink): void;
  /** Asks live readers to disconnect and refuses new requests. */
  drain(): void;
  /** Waits for running requests and closes the store. */
  close(): Promise<void>;
}

/** For runtimes that nothing tells to reload. */
const refuseReload: DecideReload = () => {
  throw new HapaxError("unsupported", "this server cannot change its options");
};

/** `createServer` with the parts that a program has chosen: see server-part.ts. */
export function composeServer(
  components: ServerComponents,
  options: ServerOptions,
  composed: readonly ServerPart[],
  decideReload: DecideReload = refuseReload,
): HapaxServer {
  const { authorize, address, onFault } = components;
  const guard = composed.find((part) => part.access !== undefined)?.access;
  if (authorize !== undefined && guard === undefined) {
    throw withoutPart("access", "; the option `authorize` needs it");
  }
  const hasAuthentication = authorize !== undefined;
  const reach = { address, hasAuthentication, checkQuotas: guard?.checkQuotas };
  const resolved = resolveServerOptions(options, reach);
  const faults = createFaults(components, resolved, composed);
  const engine = createEngine(components, resolved, composed);
  engine.start().catch(onFault);
  const doorsFor = (inForce: ResolvedServerOptions): Doors => createDoors(components, inForce);
  const parts = createParts(components, resolved, engine, composed);
  const { drain } = parts;
  const holder: PartsHolder = { current: parts };
  const ids = new RequestIds(components.random);
  const watch = createWatch(components, ids, parts.routes, composed);
  const handle = createRouter(holder, onFault, watch, components.compress, faults);
  const startDraining = (): void => {
    server.isDraining = true;
    drain.start();
  };
  const server = {
    get options() {
      return holder.current.options;
    },
    engine,
    // Data and not a getter: the lane looks at it with every answer.
    isDraining: false,
    handle,
    nextRequestId: () => ids.next(),
    reload(wanted: ServerOptions) {
      const { next, reloaded } = decideReload(
        holder.current.options,
        resolveServerOptions(wanted, reach),
      );
      holder.current = { ...parts, options: next, doors: doorsFor(next) };
      const details = {
        changed: reloaded.changed.join(),
        needRestart: reloaded.needRestart.join(),
      };
      watch.note("configuration.reload", details);
      return reloaded;
    },
    resumeReader: (place: BridgedPlace, sink: LiveSink) =>
      resumeReader(holder.current, place, sink),
    drain() {
      startDraining();
      engine.releaseHeld();
    },
    async close() {
      startDraining();
      await engine.close();
    },
  };
  return server;
}

const refuseRule = (text: string): "none" => {
  if (text === "none") return text;
  throw withoutPart("retention");
};
const NO_RULES: RuleHeaders = {
  parseRetention: refuseRule,
  parseCompaction: refuseRule,
  // No stream has one: the engine does not open a store with such streams.
  format: () => ({}),
};

function createParts(
  components: ServerComponents,
  options: ResolvedServerOptions,
  engine: Engine,
  composed: readonly ServerPart[],
): ServerParts {
  const { clock, random, onFault, authorize, digest = webDigest } = components;
  const guard = composed.find((part) => part.access !== undefined)?.access;
  const timeoutMs = options.authorizeTimeoutMs;
  const decoder = composed.find((part) => part.createDecoding !== undefined);
  return {
    engine,
    doors: createDoors(components, options),
    gate: (authorize && guard?.createGate({ authorize, timeoutMs, clock, onFault })) ?? OPEN_GATE,
    quotas: authorize && guard?.createQuotas(clock, engine.holdings),
    clock,
    random,
    options,
    listReadable: guard?.listReadable,
    actKeyed: composed.find((part) => part.actKeyed !== undefined)?.actKeyed,
    drain: new Drain(),
    backups: composed.find((part) => part.createBackups !== undefined)?.createBackups?.(clock),
    answers: components.answers ?? new AnswerBudget(clock, options.answersBytesMax),
    digest,
    rules: composed.find((part) => part.rules !== undefined)?.rules ?? NO_RULES,
    decoding: decoder?.createDecoding?.(components.decompress) ?? NO_DECODING,
    dashboard: components.dashboard,
    checkPlace: components.checkPlace,
    routes: new RouteBook(composed),
    front: composed.find(({ front }) => front !== undefined)?.front,
  };
}

/** A page that gives its name an address of this machine has no credential. So with authentication every name is good. */
function createDoors(
  { authorize, address }: Pick<ServerComponents, "authorize" | "address">,
  { corsOrigins, publicUrl }: ResolvedServerOptions,
): Doors {
  const isGuarded = authorize !== undefined;
  return new Doors({
    corsOrigins,
    address: isGuarded ? undefined : address,
    publicUrl,
    takesOwnOrigin: isGuarded,
  });
}

/** What looks at requests and writes about them. */
function createWatch(
  { clock, random, tracer, log, onAudit }: ServerComponents,
  ids: RequestIds,
  routes: RouteBook,
  composed: readonly ServerPart[],
): Watch {
  const part = composed.find((one) => one.createWatch !== undefined);
  if (part?.createWatch === undefined) {
    if ((log ?? onAudit ?? tracer) === undefined) return createQuietWatch(ids);
    throw withoutPart("logs", "; the options `log`, `onAudit` and `tracer` need it");
  }
  const routeNameOf = (path: string): string => routes.nameOf(path);
  return part.createWatch({ ids, clock, random, log, onAudit, tracer, routeNameOf });
}

function createFaults(
  { clock, random }: ServerComponents,
  { testFaults }: ResolvedServerOptions,
  composed: readonly ServerPart[],
): Faults | undefined {
  if (!testFaults) return undefined;
  const part = composed.find(({ createFaults: create }) => create !== undefined);
  if (part === undefined) throw withoutPart("testFaults");
  return part.createFaults?.(clock, random);
}

function retentionOf({
  retentionSeconds: seconds,
  retentionBytes: bytes,
}: ResolvedServerOptions): RetentionRule | undefined {
  if (seconds === 0 && bytes === 0) return undefined;
  return { seconds: seconds || undefined, bytes: bytes || undefined, dropsNeeded: false };
}

function createEngine(
  components: ServerComponents,
  options: ResolvedServerOptions,
  composed: readonly ServerPart[],
): Engine {
  const { store, random, courier, publicUrl, onFault, defer, tracer } = components;
  const create = composed.find(
    (part) => part.createSubscriptions !== undefined,
  )?.createSubscriptions;
  const retentionDefault = retentionOf(options);
  const wings: Wings = Object.assign({}, ...composed.map((part) => part.wings));
  if (retentionDefault !== undefined && wings.createTrims === undefined) {
    const words = "; the options `retentionSeconds` and `retentionBytes` need it";
    throw withoutPart("retention", words);
  }
  if (options.registry && wings.createRegistry === undefined) {
    throw withoutPart("registries", "; the option `registry` needs it");
  }
  const records = composed.find((part) => part.records !== undefined)?.records;
  return new Engine({
    store,
    clock: components.longClock ?? components.clock,
    random,
    jsonRecordsEnd: jsonRecordEnd,
    jsonRecordEndFrom,
    isJsonRecordStart,
    ...(records === undefined ? {} : { records }),
    onFault,
    keyDefaults: {
      windowSeconds: options.keyWindowSeconds,
      countMax: options.keyMax,
      overflow: options.keyOverflow,
    },
    retentionDefault,
    registries: options.registry ? { hasRoot: components.hasRootRegistry ?? true } : undefined,
    pendingBytesMax: options.pendingBytesMax,
    heldBytesMax: options.heldBytesMax,
    outcomeBytesMax: options.outcomeBytesMax,
    ...wings,
    createSubscriptions:
      create && ((parts) => create({ ...parts, courier, publicBaseUrl: publicUrl, tracer })),
    ...(defer === undefined ? {} : { defer }),
  });
}
