/**
 * The user's own client of Redis or Valkey, as the ledger uses it: ioredis, iovalkey, node-redis, Valkey GLIDE, Bun.
 *
 *   - a client is known by the one function that sends any command; nothing of it is imported;
 *   - a script goes by its digest, and by its text where the server does not know it yet: after a restart, or a failover;
 *   - an error of the server that says "not now", "no room" or "not you" gets a code; every other one stays as the client
 *     throws it.
 */

import { webSha1 } from "../../base/digest.ts";
import { HapaxError } from "../../base/errors.ts";
import { hexOf } from "../../base/hex.ts";

/** A client of ioredis or iovalkey: for one server, for Sentinel, or for a cluster. */
interface CallingClient {
  call(command: string, ...parts: string[]): Promise<unknown>;
}

/** A client of `redis` (node-redis), or a pool of them. */
interface SendingClient {
  sendCommand(parts: string[]): Promise<unknown>;
}

/** A client of `redis` (node-redis) for a cluster. It has to be told the key. */
interface SendingCluster {
  sendCommand(
    key: string | undefined,
    isReadonly: boolean | undefined,
    parts: string[],
  ): Promise<unknown>;
  readonly masters: unknown;
}

/** A client of Valkey GLIDE. */
interface CustomClient {
  customCommand(parts: string[]): Promise<unknown>;
}

/** The client that Bun has. */
interface BunClient {
  send(command: string, parts: string[]): Promise<unknown>;
}

/** A client of ioredis, iovalkey, node-redis, Valkey GLIDE or Bun, or anything that has the shape of one. */
export type RedisClient = CallingClient | SendingClient | SendingCluster | CustomClient | BunClient;

/** A program for the server, in Lua. */
export interface RedisScript {
  readonly text: string;
  /** SHA-1 in hexadecimal, made when it is needed first. */
  digest?: Promise<string>;
}

/** Sends commands through the user's client. */
export interface RedisSession {
  /** Sends any command. `key` says to which server of a cluster, where the client cannot see it in the command. */
  command(key: string | undefined, parts: readonly string[]): Promise<unknown>;
  run(script: RedisScript, keys: readonly string[], values: readonly string[]): Promise<unknown>;
}

type Send = RedisSession["command"];

/** Returns a session over the client. Throws `invalid_options` for what is no client. */
export function redisSession(client: RedisClient): RedisSession {
  const send = senderOf(client);
  const command: Send = async (key, parts) => {
    try {
      return await send(key, parts);
    } catch (error) {
      throw refusalOf(error) ?? error;
    }
  };
  return {
    command,
    async run(script, keys, values) {
      const [key] = keys;
      const rest = [String(keys.length), ...keys, ...values];
      try {
        return await send(key, ["EVALSHA", await digestOf(script), ...rest]);
      } catch (error) {
        if (!isUnknownScript(error)) throw refusalOf(error) ?? error;
      }
      return await command(key, ["EVAL", script.text, ...rest]);
    },
  };
}

function senderOf(client: RedisClient): Send {
  const given: unknown = client;
  if (typeof given === "object" && given !== null) {
    // First: ioredis has a `sendCommand` too, which takes something else.
    if (has(client, "call")) {
      return (_key, [name = "", ...rest]) => (client as CallingClient).call(name, ...rest);
    }
    if (has(client, "customCommand")) {
      return (_key, parts) => (client as CustomClient).customCommand([...parts]);
    }
    if (has(client, "sendCommand")) {
      return "masters" in client
        ? (key, parts) => (client as SendingCluster).sendCommand(key, false, [...parts])
        : (_key, parts) => (client as SendingClient).sendCommand([...parts]);
    }
    if (has(client, "send")) {
      return (_key, [name = "", ...rest]) => (client as BunClient).send(name, rest);
    }
  }
  throw new HapaxError(
    "invalid_options",
    "redisLedger takes a client of ioredis, iovalkey, node-redis, Valkey GLIDE or Bun",
  );
}

function has(client: object, name: string): boolean {
  return typeof (client as Readonly<Record<string, unknown>>)[name] === "function";
}

/** The server knows scripts by SHA-1. */
function digestOf(script: RedisScript): Promise<string> {
  script.digest ??= webSha1(new TextEncoder().encode(script.text)).then(hexOf);
  return script.digest;
}

/** The words of the server, or of GLIDE, which translates them. */
function isUnknownScript(error: unknown): boolean {
  return /NOSCRIPT|NoScript/.test(wordsOf(error));
}

/** The first word of an error of the server is its code. GLIDE and pipelines have words before it. */
const FULL = /\b(?:OOM|MISCONF)\b/;
const PASSING = /\b(?:READONLY|LOADING|CLUSTERDOWN|MASTERDOWN|TRYAGAIN|BUSY|NOREPLICAS)\b/;
const HOPELESS = /\b(?:NOAUTH|WRONGPASS|NOPERM)\b/;

function refusalOf(error: unknown): HapaxError | undefined {
  if (error instanceof HapaxError) return undefined;
  const words = wordsOf(error);
  const options = { cause: error };
  if (FULL.test(words))
    return new HapaxError("store_full", `the server takes no writes: ${words}`, options);
  if (PASSING.test(words))
    return new HapaxError("unreachable", `the server could not do it now: ${words}`, options);
  if (HOPELESS.test(words))
    return new HapaxError("invalid_options", `the server refuses: ${words}`, options);
  return undefined;
}

function wordsOf(error: unknown): string {
  return error instanceof Error ? error.message : "";
}

/** Replies are text, or bytes where the user's client is set to return them. */
export function replyText(value: unknown): string {
  if (typeof value === "string") return value;
  if (typeof value === "number" || typeof value === "bigint") return String(value);
  if (value instanceof Uint8Array) return new TextDecoder().decode(value);
  throw new TypeError(`a reply of the server has a ${typeof value} instead of text`);
}

/** The parts of a reply that is a list. */
export function replyList(value: unknown): readonly unknown[] {
  if (Array.isArray(value)) return value;
  throw new TypeError(`a reply of the server has a ${typeof value} instead of a list`);
}
