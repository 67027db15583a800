/**
 * Writes that the server has confirmed to be on disk, by WAITAOF.
 *
 * WAITAOF speaks of the writes of its own connection; a new connection has none, and is answered at once. So the ledger
 * compares who the connection is, and repeats the write where it has changed: a write that finds its own id in the entry
 * changes nothing and gets the same answer.
 */

import { HapaxError } from "../../base/errors.ts";
import { type RedisSession, replyList, replyText } from "../databases/redis.ts";
import { PUT_KNOWN, PUT_NEW } from "./redis-scripts.ts";

/** How long the server waits for its disk and its replicas. */
const CONFIRM_MS = 5_000;
/** A client may reconnect in between; one that always does so has many connections. */
const CONNECTIONS_MAX = 5;

/** Returns the same session, in which every put is confirmed. What deletes is not: to lose that repeats nothing. */
export function confirming(
  session: RedisSession,
  replicas: number,
  confirmMs = CONFIRM_MS,
): RedisSession {
  let known: string | undefined;
  return {
    command: (key, parts) => session.command(key, parts),
    async run(script, keys, values) {
      if (script !== PUT_NEW && script !== PUT_KNOWN) return session.run(script, keys, values);
      const [key] = keys;
      for (let tried = 0; tried < CONNECTIONS_MAX; tried += 1) {
        // Another call may learn of a new connection while this one waits: only what was known before the write counts.
        const before = known;
        const reply = await session.run(script, keys, values);
        const wait = ["WAITAOF", "1", String(replicas), String(confirmMs)];
        const acks = replyList(await session.command(key, wait)).map(Number);
        const connection = connectionOf(await session.command(key, ["CLIENT", "INFO"]));
        if (connection === before) {
          requireAcks(acks, replicas, confirmMs);
          return reply;
        }
        known = connection;
      }
      throw new HapaxError(
        "unsupported",
        "durability=waitaof needs a client with one connection, not a pool",
      );
    },
  };
}

function requireAcks(
  [local = 0, others = 0]: readonly number[],
  replicas: number,
  confirmMs: number,
): void {
  if (local >= 1 && others >= replicas) return;
  const facts = `local=${local} replicas=${others} wanted=${replicas}`;
  throw new HapaxError(
    "unreachable",
    `the write was done, and not confirmed to be on disk in ${confirmMs} ms; ${facts}`,
  );
}

/** Ids begin again when the server does, ports of clients do not. */
function connectionOf(info: unknown): string {
  return /\bid=\d+ addr=\S+/.exec(replyText(info))?.[0] ?? "";
}
