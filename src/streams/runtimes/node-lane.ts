/**
 * The fast lane: appends without the cost of `node:http`, which is more than that of the append. Each new connection
 * begins here. With the first request that is not a plain append the connection moves to `node:http`, and stays
 * there. docs/decisions/0012-fast-lane.md says why this is safe.
 */

import type { Socket } from "node:net";
import { type LaneCommon, LaneConnection, type LaneParts } from "./node-lane-connection.ts";
import { HeadEnds } from "./node-lane-answer.ts";

const CHECK_MS_MAX = 1000;
const CHECK_MS_MIN = 10;

export interface Lane {
  add(socket: Socket): void;
  /** Ends all connections, each after its last answer. */
  drain(): void;
  /** Ends all connections at once. */
  cut(): void;
  /** Stops the checks of the time limits. */
  close(): void;
}

export function openLane(parts: LaneParts): Lane {
  const connections = new Set<LaneConnection>();
  const { headersTimeoutMs, keepAliveTimeoutMs, stallMs } = parts.options;
  const common: LaneCommon & { checkedAtMs: number } = {
    ...parts,
    ends: new HeadEnds(keepAliveTimeoutMs),
    checkedAtMs: performance.now(),
    forget: (connection) => connections.delete(connection),
  };
  const shortest = Math.min(CHECK_MS_MAX, headersTimeoutMs || CHECK_MS_MAX, stallMs);
  const checkMs = Math.max(CHECK_MS_MIN, shortest);
  // One timer for all: a timer for each request would cost as much as its parsing.
  const timer = setInterval(() => {
    const nowMs = performance.now();
    // Events since the last check carry the time of that check, so they look older by this much.
    const slackMs = nowMs - common.checkedAtMs;
    for (const connection of [...connections]) connection.check(nowMs, slackMs);
    common.checkedAtMs = nowMs;
  }, checkMs);
  timer.unref();
  return {
    add(socket) {
      connections.add(new LaneConnection(socket, common));
    },
    drain() {
      for (const connection of [...connections]) connection.drain();
    },
    cut() {
      for (const connection of [...connections]) connection.cut();
    },
    close() {
      clearInterval(timer);
    },
  };
}
