/**
 * Finds the placement of calls that name more than one stream, or a group or a subscription. PROTOCOL.md §24.3.
 *
 *   - everything that a call names is of one placement, or the call is refused before anything is done;
 *   - a group or a subscription belongs to the placement of what it follows. Its name stays there, also when it is deleted.
 */

import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { parseGroupSettings } from "../../protocol/group.ts";
import { parseEncoding } from "../../protocol/content-encoding.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import { parseStreams, parseSubscribe } from "../../protocol/subscription.ts";
import { type OperationRequest, parseTransaction } from "../../protocol/transaction.ts";
import { parseBearer } from "../../protocol/values.ts";
import { type Access, type AccessSubject, notAllowed, UNLIMITED } from "../access/access.ts";
import type { NameBook, NameKind } from "../cluster.ts";
import { placementOf, placementOfPattern } from "../core/placement.ts";
import type { StreamName } from "../core/types.ts";
import type { HapaxServer } from "../server.ts";
import type { Decoding } from "../server/decoding.ts";
import { mayFollow } from "../server/following.ts";
import type { Gate } from "../server/gate.ts";
import type { ResolvedServerOptions } from "../server/options.ts";
import { subscriptionOf } from "../signer.ts";
import type { KeptExchange } from "./kept-exchange.ts";
import { requireSame, type Where } from "./where.ts";

/** Calls of the holder of a token: the token names the subscription. */
const BY_TOKEN = new Set(["callback", "ack", "release"]);

export interface PlacingParts {
  readonly names: NameBook;
  readonly gate: Gate;
  /** Whether a node of the cluster has signed the token. Anybody may send one, and a look for a name asks the database. */
  readonly hasIssued: (token: string) => Promise<boolean>;
  readonly decoding: Decoding;
  /** For turns between slices of long work. */
  readonly engine: Pick<HapaxServer["engine"], "slices">;
  readonly options: () => Pick<
    ResolvedServerOptions,
    "bodyBytesMax" | "bodiesBytesMax" | "allowLoopbackWebhooks"
  >;
}

export class Placing {
  readonly #parts: PlacingParts;

  constructor(parts: PlacingParts) {
    this.#parts = parts;
  }

  /** The placement of a transaction. Undefined: its body names none, or is none; any shard refuses it. */
  async ofTransaction(exchange: KeptExchange): Promise<string | undefined> {
    const access = await this.#admit(exchange);
    const operations = await this.#operationsOf(exchange);
    let placement: string | undefined;
    for (const operation of operations) {
      const one = await this.#placementOfOperation(operation, access);
      if (one === undefined) continue;
      if (placement !== undefined) requireSame(placement, one, "the operations of a transaction");
      placement = one;
    }
    return placement;
  }

  /** The placement of a call to a group or a subscription. Undefined: there is none of this name. */
  async ofNamed(
    exchange: KeptExchange,
    { what, id, verb }: Extract<Where, { kind: "named" }>,
  ): Promise<string | undefined> {
    const { names } = this.#parts;
    if (what === "subscription" && BY_TOKEN.has(verb)) {
      const token = parseBearer(exchange.header("authorization") ?? "");
      const kept = token === undefined ? undefined : subscriptionOf(token);
      if (token === undefined || kept === undefined) return undefined;
      return (await this.#parts.hasIssued(token)) ? names.find(what, kept) : undefined;
    }
    const access = await this.#admit(exchange);
    const kept = access.scoped(id);
    const isCreation = exchange.method === "PUT" && verb === "";
    const isLink = what === "subscription" && verb === "streams" && exchange.method === "POST";
    if (!isCreation && !isLink) return names.find(what, kept);
    const asked = await this.#asked(exchange, what, isLink);
    const wanted = asked && placementOfAll(asked);
    if (isLink) {
      const placement = await names.find(what, kept);
      if (placement !== undefined && wanted !== undefined) {
        requireSame(placement, wanted, "a subscription and a stream that it follows");
      }
      return placement;
    }
    // What is not well formed is refused by any shard, and binds no name.
    if (asked === undefined || wanted === undefined) return undefined;
    await this.#requireRights(access, { [what]: id }, asked);
    const bound = await names.bind(what, kept, wanted);
    requireSame(bound, wanted, `the name of the ${what} and what it follows`);
    return bound;
  }

  async #admit(exchange: KeptExchange): Promise<Access> {
    const { gate } = this.#parts;
    return gate.isGuarded ? gate.admit(exchange) : UNLIMITED;
  }

  async #operationsOf(exchange: KeptExchange): Promise<readonly OperationRequest[]> {
    const { decoding, options } = this.#parts;
    const { bodyBytesMax, bodiesBytesMax } = options();
    const coding = parseEncoding((name) => exchange.header(name), decoding);
    const sent = await exchange.body(bodyBytesMax);
    const body =
      coding === undefined || sent.length === 0
        ? sent
        : await decoding.decode(exchange, coding, sent, bodyBytesMax, bodiesBytesMax);
    const parsed = orNothing(() =>
      parseTransaction(exchange.header("content-type"), body, bodyBytesMax),
    );
    return parsed?.kind === "operations" ? parsed.operations : [];
  }

  async #placementOfOperation(
    operation: OperationRequest,
    access: Access,
  ): Promise<string | undefined> {
    switch (operation.kind) {
      case "create": {
        const { name, fork } = operation.command;
        const placement = placementOf(name);
        if (fork !== undefined) {
          requireSame(placement, placementOf(fork.sourceName), "a fork and its source");
        }
        return placement;
      }
      case "commit":
      case "done":
      case "expect_lease":
        return placementOf(operation.lease.stream);
      case "ack":
        return this.#parts.names.find("subscription", access.scoped(operation.subscription));
      default:
        return placementOf(operation.stream);
    }
  }

  /** The body of a creation or a link. Undefined: it is not well formed. */
  async #asked(
    exchange: KeptExchange,
    what: NameKind,
    isLink: boolean,
  ): Promise<Asked | undefined> {
    const max = what === "group" ? LIMITS.groupBodyBytesMax : LIMITS.subscriptionBodyBytesMax;
    const body = await exchange.body(max);
    if (isLink) return { streams: orNothing(() => parseStreams(body)) ?? [] };
    if (what === "group") return orNothing(() => parseGroupSettings(body));
    const { allowLoopbackWebhooks: allowLoopback } = this.#parts.options();
    const settings = orNothing(() => parseSubscribe(body, { allowLoopback }));
    if (settings?.way.kind !== "pull_wake") return settings;
    const { streams, pattern, way } = settings;
    return { streams, pattern, wakeStream: way.wakeStream };
  }

  /** What the shard asks for too: a name is bound for good, so it must not be bound by who may not create what it is for. */
  async #requireRights(access: Access, subject: AccessSubject, asked: Asked): Promise<void> {
    const action = subject.group === undefined ? "subscribe" : "consume";
    access.require(action, subject);
    if (!(await mayFollow(this.#parts, access, action, subject, asked))) throw notAllowed(action);
    if (asked.wakeStream !== undefined) access.require("append", { stream: asked.wakeStream });
  }
}

/** What a creation or a link names. */
interface Asked {
  readonly streams: readonly StreamName[];
  readonly pattern?: string | undefined;
  readonly wakeStream?: StreamName;
}

/** The one placement of streams and a pattern. Throws `placement_mixed` if there are several. */
function placementOfAll({ streams, pattern, wakeStream }: Asked): string | undefined {
  let placement: string | undefined;
  if (pattern !== undefined) {
    placement = placementOfPattern(pattern);
    if (placement === undefined) {
      const words = `the pattern has a star in its first segment: ${JSON.stringify(pattern)}`;
      throw new HapaxError("placement_mixed", words);
    }
  }
  const all = wakeStream === undefined ? streams : [...streams, wakeStream];
  for (const stream of all) {
    const one = placementOf(stream);
    if (placement !== undefined) requireSame(placement, one, "the streams that are followed");
    placement = one;
  }
  return placement;
}

/** What is not well formed is refused by the shard, with its own words. */
function orNothing<T>(parse: () => T): T | undefined {
  try {
    return parse();
  } catch (error) {
    if (isHapaxError(error)) return undefined;
    throw error;
  }
}
