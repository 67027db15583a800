// What tests of readers say again and again.

import { type FollowOptions, startFollowing } from "../../src/client/follow.ts";
import type { ClientAnswer } from "../../src/client/transport.ts";
import { scripted, type Stage, STREAM } from "./reads-stage.ts";

export const JSON_TYPE = { "content-type": "application/json" };
export const CLOSE = { "stream-closed": "true" };
export const EVENTS = { "content-type": "text/event-stream" };

export async function opened(stage: Stage, ...appends: readonly string[]): Promise<Stage> {
  await stage.send("PUT", JSON_TYPE);
  for (const body of appends) await stage.send("POST", JSON_TYPE, body);
  return stage;
}

export async function values(stage: Stage, options: FollowOptions = {}): Promise<unknown[]> {
  const all: unknown[] = [];
  for await (const { value } of startFollowing(stage.caller, STREAM, options)) all.push(value);
  return all;
}

export const ways = (stage: Stage): (string | null)[] =>
  stage.asked.map(({ query }) => query.get("live"));
export const dataEvent = (json: string): string => `event: data\ndata:${json}\n\n`;
export const control = (members: object): string =>
  `event: control\ndata:${JSON.stringify(members)}\n\n`;
export const offset = (at: number): string => `0000000000000000_${String(at).padStart(16, "0")}`;
export const pageAt = (at: number, json = "[]"): ClientAnswer =>
  scripted(200, { ...JSON_TYPE, "stream-next-offset": offset(at), "stream-up-to-date": "true" }, [
    json,
  ]);
