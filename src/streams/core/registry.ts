/**
 * Registries: streams that hold the lives of the streams beside and below them. PROTOCOL.md §25.
 *
 *   - an event is staged in the step that creates, closes or ends its stream, and so is in the same commit: once, or not at all;
 *   - a registry is a stream like any other. It has no events of itself;
 *   - events are messages of the State protocol, so its libraries show what there is.
 */

import { isJson, lifeOf, type StreamState, type StreamsByName } from "./stream.ts";
import type { StreamName, TimeMs } from "./types.ts";

/** The last segment of every registry. */
export const REGISTRY_SEGMENT = "__registry__";
const ROOT = "/v1/stream/";
/** Folders from the root on that may have one. A path can have a thousand, and each is looked up. */
const FOLDERS_MAX = 16;

/** What happens to a stream. */
export type LifeKind = "created" | "closed" | "deleted";

/** Where registries may be. */
export interface RegistryPlaces {
  /** Whether one directly below `/v1/stream/` counts. In a cluster its streams would have other owners. */
  readonly hasRoot: boolean;
}

/** The open JSON registries of a stream, the root's first. */
export function registriesOf(
  streams: StreamsByName,
  name: StreamName,
  { hasRoot }: RegistryPlaces,
): readonly StreamState[] {
  if (!name.startsWith(ROOT)) return [];
  const found: StreamState[] = [];
  let end = ROOT.length;
  for (let folders = 0; folders < FOLDERS_MAX && end > 0; folders += 1) {
    const path = `${name.slice(0, end)}${REGISTRY_SEGMENT}` as StreamName;
    const state = hasRoot || folders > 0 ? streams.get(path) : undefined;
    if (state !== undefined && path !== name && isFollowing(state)) found.push(state);
    end = name.indexOf("/", end) + 1;
  }
  return found;
}

function isFollowing(state: StreamState): boolean {
  return !state.isClosed && !state.isDeleted && isJson(state.contentType);
}

/** An event as JSON text. `atMs`: when it happens. */
export function lifeEvent(
  kind: LifeKind,
  state: Pick<StreamState, "id" | "run" | "name" | "contentType" | "createdAtMs">,
  atMs: TimeMs,
  world: Parameters<typeof lifeOf>[1],
): string {
  const key = state.name.slice(ROOT.length);
  const how = { life: lifeOf(state, world), at: atMs };
  if (kind === "deleted") {
    return JSON.stringify({ type: "stream", key, headers: { operation: "delete", ...how } });
  }
  const operation = kind === "created" ? "insert" : "update";
  const { contentType, createdAtMs: createdAt } = state;
  const closed = kind === "closed" ? { closed: true } : {};
  const value = { path: key, contentType, createdAt, ...closed };
  return JSON.stringify({ type: "stream", key, value, headers: { operation, ...how } });
}
