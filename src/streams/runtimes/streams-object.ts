/** A whole server inside a Durable Object: streams, groups and transactions of one object are one world. */

import { systemClock } from "../../base/clock.ts";
import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/limits.ts";
import { BodyBudget } from "../server/body-budget.ts";
import type { LiveAnswer } from "../server/exchange.ts";
import { faultEntry } from "../server/log-entries.ts";
import type { ServerParts } from "../server/parts.ts";
import type { ServerPart } from "../server/server-part.ts";
import { type BookRules, NO_GROUPS, NO_SUBSCRIPTIONS } from "../core/books.ts";
import type {
  DurableObjectStore,
  DurableObjectStoreOptions,
} from "../stores/durable-object/contract.ts";
import { openInObject } from "../stores/durable-object/object-store.ts";
import { fetchResponse } from "./fetch-answer.ts";
import { FetchExchange } from "./fetch-exchange.ts";
import { fetchRefusal } from "./fetch-refusal.ts";
import { createServerOnFetch, type FetchServer, type FetchServerOptions } from "./fetch-server.ts";
import { ObjectClock } from "./object-clock.ts";
import type { ObjectContext, ObjectSocket } from "./object-platform.ts";
import { ReaderSocket, readerOf } from "./reader-socket.ts";

/** A request with this header asks for its live answer on a WebSocket. */
export const BRIDGE_HEADER = "Hapax-Bridge";
/** Of its answer: milliseconds after which the live answer ends. */
export const LIFE_HEADER = "Hapax-Reader-Life-Ms";
/** The object to which the door has sent a request that a path does not lead to one: its name, percent-encoded. */
export const OBJECT_HEADER = "Hapax-Object";
/** The address of the client, as the platform knows it. */
const PEER_HEADER = "CF-Connecting-IP";
const TAG = "hapax-reader";
/** What the Worker may have to hold for one reader. */
const READER_BUFFER_BYTES = 256 * 1024;
/** After a failed write the answers that wait still leave. */
const ABORT_MS = 100;

/** Options of streams in a Durable Object: those of a server on `fetch`, and of the store. */
export interface DurableStreamsOptions
  extends
    Omit<FetchServerOptions, "store" | "address" | "clock" | "longClock">,
    Pick<DurableObjectStoreOptions, "databaseBytesMax" | "snapshotCommits" | "snapshotBytes"> {
  /**
   * The parts that the server has beside streams and forks, such as `[transactions, groups]`. A Worker bundles only the parts
   * that it names here; requests that need another one are refused with `unsupported`. Default none.
   */
  readonly parts?: readonly ServerPart[];
  /**
   * The same function as that of `streamsDoor`. A transaction creates streams of its object alone: without the function it creates none.
   */
  readonly objectOf?: (path: string) => string | undefined;
}

/** A Durable Object with streams. If your class overrides a method, call `super` in it. */
export interface DurableStreams {
  fetch(request: Request): Promise<Response>;
  alarm(): Promise<void>;
  webSocketMessage(socket: ObjectSocket, message: string | ArrayBuffer): Promise<void>;
  webSocketClose(socket: ObjectSocket, code: number): Promise<void>;
  webSocketError(socket: ObjectSocket): Promise<void>;
}

/** The parts of an object that is open. */
interface Open {
  readonly store: DurableObjectStore;
  readonly server: FetchServer;
}

export class StreamsObject implements DurableStreams {
  readonly #context: ObjectContext;
  readonly #options: DurableStreamsOptions;
  readonly #clock: ObjectClock;
  readonly #budget = new BodyBudget(LIMITS.bodyBytesPerSecondMin, systemClock, 0);
  /** Keyed by the socket, which the platform hands to each handler. */
  readonly #readers = new Map<ObjectSocket, ReaderSocket>();
  #open: Open | undefined;
  #failure: unknown;
  #isAborting = false;

  constructor(context: ObjectContext, options: DurableStreamsOptions) {
    this.#context = context;
    this.#options = options;
    this.#clock = new ObjectClock(context.storage, this.#onFault);
    void context.blockConcurrencyWhile(async () => {
      try {
        await this.#start();
      } catch (error) {
        // An error here would end the object, and each request would begin it again. It is answered instead.
        this.#failure = error;
        this.#onFault(error);
      }
    });
  }

  async fetch(request: Request): Promise<Response> {
    if (this.#open === undefined) return fetchRefusal(request, this.#failure);
    const { server } = this.#open;
    const peer = request.headers.get(PEER_HEADER) ?? "";
    // Any client can send the header, and what bridges a reader has no body.
    const isBridged = request.method === "GET" && request.headers.has(BRIDGE_HEADER);
    if (isBridged) return this.#bridge(request, server, peer);
    return server.fetch(request, { peer });
  }

  async alarm(): Promise<void> {
    this.#clock.alarm();
    // What is due is written before the alarm counts as done. A failed write has been told.
    await this.#open?.server.server.engine.settled().catch(() => undefined);
  }

  async webSocketMessage(socket: ObjectSocket, message: string | ArrayBuffer): Promise<void> {
    const bytes = typeof message === "string" ? Number(message) : Number.NaN;
    if (Number.isSafeInteger(bytes)) this.#readers.get(socket)?.taken(bytes);
  }

  async webSocketClose(socket: ObjectSocket, code: number): Promise<void> {
    this.#forget(socket);
    // 1005 and 1006 say that no code came, and cannot be sent.
    socket.close(code === 1005 || code === 1006 ? 1000 : code);
  }

  async webSocketError(socket: ObjectSocket): Promise<void> {
    this.#forget(socket);
  }

  async #start(): Promise<void> {
    const { storage } = this.#context;
    const { databaseBytesMax, snapshotCommits, snapshotBytes, ...others } = this.#options;
    const { parts = [], objectOf, ...rest } = others;
    const opening: DurableObjectStoreOptions = {
      ...(databaseBytesMax === undefined ? {} : { databaseBytesMax }),
      ...(snapshotCommits === undefined ? {} : { snapshotCommits }),
      ...(snapshotBytes === undefined ? {} : { snapshotBytes }),
      onWarning: (warning) => {
        this.#onFault(new HapaxError("internal", `the store of the object: ${warning}`));
      },
    };
    const store = await openInObject(storage, opening, booksOf(parts));
    const server = createServerOnFetch(
      {
        readerBufferBytes: READER_BUFFER_BYTES,
        ...rest,
        onFault: this.#onFault,
        longClock: this.#clock,
      },
      { store, parts, checkPlace: placesOf(objectOf) },
    );
    this.#open = { store, server };
    // Before timers run: a stream with a reader does not expire.
    for (const socket of this.#context.getWebSockets(TAG)) this.#resume(socket, server);
    await this.#clock.begin();
  }

  #resume(socket: ObjectSocket, { server }: FetchServer): void {
    const place = readerOf(socket);
    const reader = new ReaderSocket(socket, systemClock, place);
    this.#readers.set(socket, reader);
    if (place === undefined) reader.cut();
    else server.resumeReader(place, reader);
  }

  async #bridge(request: Request, { server }: FetchServer, peer: string): Promise<Response> {
    // A request of its own: the platform ends the signal of the other one with the upgrade.
    const { url, method, headers } = request;
    const asked = new Request(url, { method, headers });
    const { publicUrl } = this.#options;
    const exchange = new FetchExchange(asked, { budget: this.#budget, publicUrl, peer });
    const answer = await server.handle(exchange);
    if ("live" in answer) return this.#follow(answer);
    const { readerStallMs: stallMs } = server.options;
    const { signal } = asked;
    return fetchResponse(answer, method === "HEAD", { clock: systemClock, stallMs, signal });
  }

  #follow({ headers, live }: LiveAnswer): Response {
    const { 0: theirs, 1: ours } = new WebSocketPair();
    this.#context.acceptWebSocket(ours, [TAG]);
    const reader = new ReaderSocket(ours, systemClock);
    this.#readers.set(ours, reader);
    reader.onClose(() => {
      this.#readers.delete(ours);
    });
    live(reader);
    const init: ResponseInit & { webSocket: ObjectSocket } = {
      status: 101,
      headers: { ...headers, [LIFE_HEADER]: String(Math.ceil(reader.lifeMs)) },
      webSocket: theirs,
    };
    return new Response(null, init);
  }

  #forget(socket: ObjectSocket): void {
    this.#readers.get(socket)?.closed();
    this.#readers.delete(socket);
  }

  readonly #onFault = (error: unknown): void => {
    const { onFault, log } = this.#options;
    if (onFault !== undefined) onFault(error);
    else if (log !== undefined) log(faultEntry(error, systemClock.nowMs()));
    else console.error(error);
    // The world is ahead of what is stored. Only another life of the object knows the truth.
    if (!isHapaxError(error, "writes_stopped") || this.#isAborting) return;
    this.#isAborting = true;
    systemClock.after(ABORT_MS, () => {
      this.#context.abort("a write has failed");
    });
  };
}

/** The rules of the parts, and none for the rest. */
function booksOf(parts: readonly ServerPart[]): BookRules {
  const bare: BookRules = { groups: NO_GROUPS, subscriptions: NO_SUBSCRIPTIONS };
  return Object.assign(bare, ...parts.map(({ books }) => books));
}

/**
 * A path leads to one object. A stream of that path in another object, where a caller can name it in a transaction, could be neither read nor
 * deleted, so it is not created. A request that has not come through the door is the business of who has sent it.
 */
function placesOf(objectOf: DurableStreamsOptions["objectOf"]): ServerParts["checkPlace"] {
  return (stream, exchange) => {
    const sent = exchange.header(OBJECT_HEADER.toLowerCase());
    if (sent === undefined) return;
    if (objectOf === undefined) {
      const words =
        "a transaction creates streams if durableStreams has the option objectOf, as streamsDoor has";
      throw new HapaxError("unsupported", words);
    }
    const name = objectOf(stream);
    if (name === undefined || encodeURIComponent(name) === sent) return;
    const words = "the path leads to another object: name that one with ?object=";
    throw new HapaxError("invalid_request", `${words}, stream=${stream}`);
  };
}

/** Of the platform: two ends of one connection. */
declare const WebSocketPair: new () => { readonly 0: ObjectSocket; readonly 1: ObjectSocket };
