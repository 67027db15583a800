/** A server as the source of a backup: an instant that it keeps, and ranges that are read at a rate. PROTOCOL.md §27.1. */

import { parseIncarnation } from "../../base/incarnation.ts";
import type {
  BackupPlan,
  PlannedSegment,
  PlannedSnapshot,
} from "../../streams/stores/backup/document.ts";
import type { BackupSource } from "../../streams/stores/backup/making.ts";
import type { Invocation } from "../command.ts";
import type { Context } from "../context.ts";
import { CommandFailure, EXIT } from "../failure.ts";
import { refusal, sendWithRetries } from "../http.ts";
import { resolvePath } from "../target.ts";

export interface BackupSourceOptions {
  readonly retrySeconds: number;
  /** 0: as fast as the server answers. */
  readonly bytesPerSecond: number;
  readonly signal: AbortSignal;
}

type Method = "GET" | "POST" | "DELETE";

export class ServerSource implements BackupSource {
  readonly plan: BackupPlan;
  readonly #call: Calling;
  readonly #path: string;
  readonly #options: BackupSourceOptions;
  readonly #context: Context;
  readonly #beganMs: number;
  fetched = 0;

  private constructor(call: Calling, context: Context, options: BackupSourceOptions, begun: Begun) {
    this.#call = call;
    this.#context = context;
    this.#options = options;
    this.#path = `/_hapax/backups/${begun.backup}`;
    this.#beganMs = context.nowMs();
    const { backup: _backup, ...plan } = begun;
    this.plan = plan;
  }

  static async begin(
    invocation: Invocation,
    context: Context,
    options: BackupSourceOptions,
  ): Promise<ServerSource> {
    const call: Calling = async (method, path, query = {}) => {
      const target = resolvePath(invocation, context, path);
      const { signal, retrySeconds } = options;
      const asked = { target, method, query, signal };
      const { answer } = await sendWithRetries(context, asked, retrySeconds);
      if (![200, 201, 204].includes(answer.status)) throw refusal(target, answer);
      return answer.body;
    };
    const body = await call("POST", "/_hapax/backups");
    return new ServerSource(call, context, options, parsePlan(body));
  }

  readSegment({ number }: PlannedSegment, from: number): Promise<Uint8Array> {
    return this.#read(`segments/${number}`, from);
  }

  readSnapshot({ lsn }: PlannedSnapshot, from: number): Promise<Uint8Array> {
    return this.#read(`snapshots/${lsn}`, from);
  }

  /** The server may give room back. A backup that is not done counts for nothing. */
  async end(isDone: boolean): Promise<void> {
    await this.#call("DELETE", this.#path, isDone ? { done: "true" } : {});
  }

  async #read(what: string, from: number): Promise<Uint8Array> {
    const { bytesPerSecond, signal } = this.#options;
    if (bytesPerSecond > 0) {
      const dueMs = this.#beganMs + (this.fetched / bytesPerSecond) * 1000;
      const leftMs = dueMs - this.#context.nowMs();
      // The server keeps what it holds for a minute without a request: a part is never that late.
      if (leftMs > 0) await this.#context.wait(Math.min(leftMs, 10_000), signal);
    }
    const bytes = await this.#call("GET", `${this.#path}/${what}`, { from: String(from) });
    this.fetched += bytes.length;
    return bytes;
  }
}

type Calling = (
  method: Method,
  path: string,
  query?: Readonly<Record<string, string>>,
) => Promise<Uint8Array>;

type Begun = BackupPlan & { readonly backup: string };

/** What comes from another machine is checked once, here. */
function parsePlan(body: Uint8Array): Begun {
  const found: unknown = JSON.parse(new TextDecoder().decode(body));
  const facts = members(found);
  return {
    backup: text(facts, "backup", /^[\w-]{1,64}$/),
    takenAt: text(facts, "takenAt", /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
    storeId: text(facts, "storeId", /^[\da-f]{32}$/),
    incarnation: incarnationOf(facts),
    lsn: count(facts, "lsn"),
    crc: count(facts, "crc"),
    changes: count(facts, "changes"),
    segments: list(facts, "segments").map((one) => ({
      number: count(one, "number"),
      firstLsn: count(one, "firstLsn"),
      salt: count(one, "salt"),
      crcBefore: count(one, "crcBefore"),
      bytes: count(one, "bytes"),
    })),
    snapshots: list(facts, "snapshots").map((one) => {
      return { lsn: count(one, "lsn"), bytes: count(one, "bytes") };
    }),
  };
}

type Facts = ReadonlyMap<string, unknown>;

function members(value: unknown): Facts {
  return new Map<string, unknown>(
    typeof value === "object" && value !== null ? Object.entries(value) : [],
  );
}

function text(facts: Facts, name: string, form: RegExp): string {
  const value = facts.get(name);
  if (typeof value === "string" && form.test(value)) return value;
  throw notOurs(name);
}

function incarnationOf(facts: Facts): string {
  const value = facts.get("incarnation");
  if (typeof value === "string" && parseIncarnation(value) !== undefined) return value;
  throw notOurs("incarnation");
}

function count(facts: Facts, name: string): number {
  const value = facts.get(name);
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= 0) return value;
  throw notOurs(name);
}

function list(facts: Facts, name: string): readonly Facts[] {
  const value: unknown = facts.get(name);
  if (Array.isArray(value)) return value.map(members);
  throw notOurs(name);
}

function notOurs(name: string): CommandFailure {
  return new CommandFailure(EXIT.refused, `the server's answer has no valid ${name}`, [
    "is it a Hapax server of this version or later? see: hapax version",
  ]);
}
