/**
 * Writes events of the lives of streams into registries, in the batch of what they report. PROTOCOL.md §25.
 *
 *   - what has an event needs room for it: it is asked for before anything is decided, and on a full disk the act is refused, or
 *     waits if no request asked for it.
 */

import { utf8Of } from "../../base/bytes.ts";
import type { Change, StreamAppended } from "../core/change.ts";
import { lifeEvent, type LifeKind, type RegistryPlaces, registriesOf } from "../core/registry.ts";
import { isSystemStream, type StreamState } from "../core/stream.ts";
import type { StreamName, TimeMs } from "../core/types.ts";
import type { World } from "../core/world.ts";

/** An event without the names in it. */
const EVENT_BYTES = 352;

export class Registry {
  readonly #world: World;
  readonly #places: RegistryPlaces;

  constructor(world: World, places: RegistryPlaces) {
    this.#world = world;
    this.#places = places;
  }

  /** What the events of an act on this stream take, at most. */
  bytesOf(name: StreamName, contentType: string, events = 1): number {
    const count = registriesOf(this.#world.streams, name, this.#places).length * events;
    // A character of a name is six bytes at most, as JSON escapes it; the name is there twice.
    return count === 0 ? 0 : count * (EVENT_BYTES + 12 * name.length + 6 * contentType.length);
  }

  /** What follows a change that has been applied. */
  after(change: Change): readonly StreamAppended[] {
    if (change.kind === "created") return this.#events("created", change.stream, change.atMs);
    const isClose = change.kind === "appended" && change.closes;
    return isClose ? this.#events("closed", change.stream, change.atMs) : [];
  }

  /** What follows the end of a stream that has been applied. */
  ended(state: StreamState, atMs: TimeMs): readonly StreamAppended[] {
    return this.#eventsOf("deleted", state, atMs);
  }

  #events(kind: LifeKind, id: StreamState["id"], atMs: TimeMs): readonly StreamAppended[] {
    const state = this.#world.byId.get(id);
    return state === undefined ? [] : this.#eventsOf(kind, state, atMs);
  }

  #eventsOf(kind: LifeKind, state: StreamState, atMs: TimeMs): readonly StreamAppended[] {
    if (isSystemStream(state.name)) return [];
    const registries = registriesOf(this.#world.streams, state.name, this.#places);
    if (registries.length === 0) return [];
    // A stored record ends with a comma.
    const data = utf8Of(`${lifeEvent(kind, state, atMs, this.#world)},`);
    return registries.map(({ id: stream }) => ({
      kind: "appended",
      atMs,
      stream,
      data,
      closes: false,
      producer: undefined,
      streamSeq: undefined,
      key: undefined,
    }));
  }
}
