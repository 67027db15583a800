/** Administers one group. PROTOCOL.md §20. */

import { IDEMPOTENCY_KEY } from "../../protocol/header-names.ts";
import { isHapaxError } from "../../base/errors.ts";
import type { Caller } from "../attempt.ts";
import { callJson, listOf, mapOf, textsOf } from "./calls.ts";
import type { Addresses, StreamTarget } from "./paths.ts";

/** Where a group begins on a stream: an offset, its beginning, or its tail. */
export type GroupStart = "beginning" | "tail" | (string & {});

/** The options of a group. `pattern` or `streams` is required. */
export interface GroupOptions {
  /** A pattern over absolute paths, such as `/v1/stream/orders/*`. It also takes streams that are created later. */
  readonly pattern?: string;
  readonly streams?: readonly StreamTarget[];
  /** The start on existing streams; later streams are read from their beginning. Default `beginning`. */
  readonly start?: GroupStart;
  /**
   * How long a member keeps its streams without a sign of life, in milliseconds. A longer time delays the
   * takeover after a crash. Default: the server's, 30,000.
   */
  readonly leaseMs?: number;
  /**
   * Makes a group of jobs, which gives out single records. `connection.jobs` creates such a group. Not allowed
   * together with `pattern`. Default false.
   */
  readonly jobs?: boolean;
}

/** The progress of a group on one stream. */
export interface GroupCursor {
  readonly stream: string;
  /** The committed offset. */
  readonly offset: string;
  /** The tail of the stream. */
  readonly nextOffset: string;
  /** The bytes between `offset` and `nextOffset`. */
  readonly lag: number;
  readonly token: number;
  /** The member that has the stream. */
  readonly member: string | undefined;
  /** The server has asked the holder to hand the stream over. */
  readonly handOver: boolean;
  /** The stream is closed and committed to its end. */
  readonly finished: boolean;
  /** Of a group of jobs: how many were given and are not done. */
  readonly openJobs: number | undefined;
  /** Of a group of jobs: how many of these have no worker now, because they were put back or their worker is gone. */
  readonly waitingJobs: number | undefined;
  /** Of a group of jobs: the highest attempt of those that are not done. */
  readonly attemptMax: number | undefined;
}

/** The server's description of a group. */
export interface GroupDescription {
  readonly group: string;
  readonly pattern: string | undefined;
  readonly streams: readonly string[];
  readonly start: string;
  readonly leaseMs: number;
  readonly members: readonly {
    readonly member: string;
    readonly leases: number;
    readonly expiresInMs: number;
  }[];
  readonly cursors: readonly GroupCursor[];
  /** More cursors may follow after this stream: pass it as `after`. */
  readonly next: string | undefined;
}

interface Signalled {
  readonly signal?: AbortSignal | undefined;
}

/** The handle of a group. `connection.group(name)` creates it. */
export class Group {
  readonly name: string;
  readonly #caller: Caller;
  readonly #addresses: Addresses;

  constructor(caller: Caller, addresses: Addresses, name: string) {
    this.#caller = caller;
    this.#addresses = addresses;
    this.name = name;
  }

  /** Creates the group. Repeating it with the same options changes nothing; other options throw `group_exists`. */
  async create(options: GroupOptions & Signalled): Promise<void> {
    const { signal, streams, ...others } = options;
    const paths = streams?.map((stream) => this.#addresses.pathOf(stream));
    const body = { ...others, ...(paths === undefined ? {} : { streams: paths }) };
    await callJson(this.#caller, { method: "PUT", url: this.#url(), signal }, body);
  }

  /** Describes the group. Rejects with `group_not_found` if there is none. */
  async describe(
    options: Signalled & { readonly after?: string; readonly limit?: number } = {},
  ): Promise<GroupDescription> {
    const url = new URL(this.#url());
    const { after, limit, signal } = options;
    if (after !== undefined) url.searchParams.set("after", after);
    if (limit !== undefined) url.searchParams.set("limit", String(limit));
    const members = await callJson(this.#caller, { method: "GET", url: url.href, signal });
    return describe(members);
  }

  /**
   * Moves the offset of one stream, or of all, forward or back. The leases of these streams end. Moved back, records
   * are processed again; moved forward, they are skipped. Returns the number of streams.
   */
  async reset(
    options: Signalled & { readonly to: GroupStart; readonly stream?: StreamTarget },
  ): Promise<number> {
    const { to, stream, signal } = options;
    const path = stream === undefined ? undefined : this.#addresses.pathOf(stream);
    const body = { to, ...(path === undefined ? {} : { stream: path }) };
    const call = { method: "POST", url: this.#url("reset"), signal, headers: this.#key() };
    const count = (await callJson(this.#caller, call, body)).get("streams");
    return typeof count === "number" ? count : 0;
  }

  /** Deletes the group and its offsets. Does nothing if it does not exist. */
  async delete(options: Signalled = {}): Promise<void> {
    try {
      const call = { method: "DELETE", url: this.#url(), headers: this.#key(), ...options };
      await callJson(this.#caller, call);
    } catch (error) {
      if (!isHapaxError(error, "group_not_found")) throw error;
    }
  }

  /** Returns one key for all attempts of an act: the server does it once, also if an answer is lost. PROTOCOL.md §12.7. */
  #key(): Readonly<Record<string, string>> {
    return { [IDEMPOTENCY_KEY]: `"${this.#caller.options.random.id()}"` };
  }

  #url(action?: string): string {
    return this.#addresses.group(this.name, action);
  }
}

function describe(members: ReadonlyMap<string, unknown>): GroupDescription {
  return {
    group: textOr(members.get("group")) ?? "",
    pattern: textOr(members.get("pattern")),
    streams: textsOf(members.get("streams")),
    start: textOr(members.get("start")) ?? "beginning",
    leaseMs: numberOr(members.get("leaseMs")),
    members: listOf(members.get("members")).map((value) => {
      const one = mapOf(value);
      return {
        member: textOr(one.get("member")) ?? "",
        leases: numberOr(one.get("leases")),
        expiresInMs: numberOr(one.get("expiresInMs")),
      };
    }),
    cursors: listOf(members.get("cursors")).map(cursorOf),
    next: textOr(members.get("next")),
  };
}

function cursorOf(value: unknown): GroupCursor {
  const one = mapOf(value);
  return {
    stream: textOr(one.get("stream")) ?? "",
    offset: textOr(one.get("offset")) ?? "",
    nextOffset: textOr(one.get("nextOffset")) ?? "",
    lag: numberOr(one.get("lag")),
    token: numberOr(one.get("token")),
    member: textOr(one.get("member")),
    handOver: one.get("handOver") === true,
    finished: one.get("finished") === true,
    openJobs: countIn(one, "openJobs"),
    waitingJobs: countIn(one, "waitingJobs"),
    attemptMax: countIn(one, "attemptMax"),
  };
}

function countIn(one: ReadonlyMap<string, unknown>, name: string): number | undefined {
  return one.has(name) ? numberOr(one.get(name)) : undefined;
}

function textOr(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

function numberOr(value: unknown): number {
  return typeof value === "number" ? value : 0;
}
