/** The administration of one group. PROTOCOL.md §20. */

import { isHapaxError } from "../../base/errors.ts";
import type { Caller } from "../attempt.ts";
import { callJson, listOf, mapOf, textsOf } from "./calls.ts";
import type { Addresses, StreamTarget } from "./paths.ts";

/** Where a group begins on a stream: an offset, its beginning, or its tail. */
export type GroupStart = "beginning" | "tail" | (string & {});

/** What a group is made of. `pattern` or `streams` is required. */
export interface GroupSettings {
  /** Streams by a pattern over absolute paths, as `/v1/stream/orders/*`; also those that come later. */
  readonly pattern?: string;
  readonly streams?: readonly StreamTarget[];
  /** For the streams that are there; those that come later are read from their beginning. Default `beginning`. */
  readonly start?: GroupStart;
  /** How long a member counts as live without a sign, in milliseconds. Default: the server's, 30,000. */
  readonly leaseMs?: number;
}

/** How far a group has come on one stream. */
export interface GroupCursor {
  readonly stream: string;
  /** Committed. */
  readonly offset: string;
  /** The tail of the stream. */
  readonly nextOffset: string;
  /** Bytes between the two. */
  readonly lag: number;
  readonly token: number;
  /** Who has it. */
  readonly member: string | undefined;
  /** Its holder is asked to hand it over. */
  readonly handOver: boolean;
  /** The stream is closed and committed to its end. */
  readonly finished: boolean;
}

/** A group, as the server describes it. */
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
  /** There may be more cursors after this stream. */
  readonly next: string | undefined;
}

interface Signalled {
  readonly signal?: AbortSignal | undefined;
}

/** The handle of a group. Made by `connection.group(name)`. */
export class Group {
  readonly name: string;
  readonly #caller: Caller;
  readonly #addresses: Addresses;

  constructor(caller: Caller, addresses: Addresses, name: string) {
    this.#caller = caller;
    this.#addresses = addresses;
    this.name = name;
  }

  /** Creates the group. The same again changes nothing; other settings are `group_exists`. */
  async create(settings: GroupSettings & Signalled): Promise<void> {
    const { signal, streams, ...others } = settings;
    const paths = streams?.map((stream) => this.#addresses.pathOf(stream));
    const body = { ...others, ...(paths === undefined ? {} : { streams: paths }) };
    await callJson(this.#caller, { method: "PUT", url: this.#url(), signal }, body);
  }

  /** Describes it. Rejects with `group_not_found` if there is none. */
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
   * Moves offsets, also back: of one stream, or of all. The leases of these streams end, and what was processed is
   * processed again, or left out. Answers how many streams it concerned.
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

  /** Forgets the group and its offsets. Deleting what is not there is no error. */
  async delete(options: Signalled = {}): Promise<void> {
    try {
      const call = { method: "DELETE", url: this.#url(), headers: this.#key(), ...options };
      await callJson(this.#caller, call);
    } catch (error) {
      if (!isHapaxError(error, "group_not_found")) throw error;
    }
  }

  /** An act has one key for all its attempts: the server does it once, also if an answer is lost. PROTOCOL.md §12.7. */
  #key(): Readonly<Record<string, string>> {
    return { "Idempotency-Key": `"${this.#caller.settings.random.id()}"` };
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
  };
}

function textOr(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

function numberOr(value: unknown): number {
  return typeof value === "number" ? value : 0;
}
