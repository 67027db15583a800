/** Faults of streams in Durable Objects. */

import type { Fault } from "./faults.ts";

const STORE = "src/streams/stores/durable-object/object-store.ts";
const PAGES = "src/streams/stores/durable-object/pages.ts";
const ROOM = "src/streams/stores/durable-object/object-room.ts";
const RECOVERY = "src/streams/stores/durable-object/recovery.ts";
const CONNECTION = "src/streams/server/live-connection.ts";
const SOCKET = "src/streams/runtimes/reader-socket.ts";
const STORE_TEST = "test/workers/store.test.ts";
const TEST = "test/workers/streams.test.ts";
const DOOR_TEST = "test/workers/door.test.ts";
const PARTS_TEST = "test/workers/parts.test.ts";
const KEPT_PARTS =
  "an object without parts > G70 §12.14 opens nothing that needs a part which is not there, and has lost nothing when it is back";
const FRAMES = "the store of an object > keeps the contract of stores, in frames";
const IN_PAGES = "the store of an object > keeps the contract of stores, in pages";

export const objectFaults: readonly Fault[] = [
  {
    name: "objects: a reader gets events after its credential is over",
    guarantee: "G72",
    file: SOCKET,
    find: "if (this.#clock.nowMs() >= this.#endsAtMs) {",
    replace: "if (this.#clock.nowMs() >= Infinity) {",
    caughtBy: {
      file: "test/workers/access.test.ts",
      test: "access in objects > G72 a reader that holds the socket of its object itself gets nothing when its credential is over",
    },
  },
  {
    name: "objects: another spelling of a path leads to another object",
    guarantee: "G72",
    file: "src/streams/runtimes/streams-door.ts",
    find: "return objectOf(stream) ?? asked;",
    replace: "return objectOf(url.pathname) ?? asked;",
    caughtBy: {
      file: DOOR_TEST,
      test: "the door of streams in objects > G72 every spelling of a path leads to the one object of its stream",
    },
  },
  {
    name: "objects: a caller chooses the object of a stream",
    guarantee: "G72",
    file: "src/streams/runtimes/streams-door.ts",
    find: "return objectOf(stream) ?? asked;",
    replace: "return asked ?? objectOf(stream);",
    caughtBy: {
      file: DOOR_TEST,
      test: "the door of streams in objects > G72 a stream outside of /v1/stream is in the object of its path, also if its caller names another one",
    },
  },
  {
    name: "objects: a transaction creates a stream of another object",
    guarantee: "G72",
    file: "src/streams/server/transactions.ts",
    find: "parts.checkPlace?.(operation.command.name, exchange);",
    replace: "continue;",
    caughtBy: {
      file: PARTS_TEST,
      test: "streams of another object > G72 a transaction creates no stream where no path leads",
    },
  },
  {
    name: "objects: a client says itself which object it has reached",
    guarantee: "G72",
    file: "src/streams/runtimes/streams-door.ts",
    find: "else headers.set(OBJECT_HEADER, encodeURIComponent(name));",
    replace:
      "else if (!headers.has(OBJECT_HEADER)) headers.set(OBJECT_HEADER, encodeURIComponent(name));",
    caughtBy: {
      file: PARTS_TEST,
      test: "streams of another object > G72 a client names its object by ?object= alone",
    },
  },
  {
    name: "objects: subscriptions without their part are kept in silence",
    guarantee: "G70",
    file: "src/streams/engine/wings.ts",
    find: "if (createSubscriptions === undefined && world.subscriptions.byId.size > 0)",
    replace: "if (createSubscriptions === undefined && world.subscriptions.byId.size < 0)",
    caughtBy: { file: PARTS_TEST, test: KEPT_PARTS },
  },
  {
    name: "objects: groups without their part are kept in silence",
    guarantee: "G70",
    file: "src/streams/engine/wings.ts",
    find: "if (createGroups === undefined && world.groups.byId.size > 0)",
    replace: "if (createGroups === undefined && world.groups.byId.size < 0)",
    caughtBy: { file: PARTS_TEST, test: KEPT_PARTS },
  },
  {
    name: "objects: rules of retention without their part are kept in silence",
    guarantee: "G70",
    file: "src/streams/engine/wings.ts",
    find: "if (retained?.rule !== undefined) refuse(",
    replace: "if (retained?.rule === null) refuse(",
    caughtBy: { file: PARTS_TEST, test: KEPT_PARTS },
  },
  {
    name: "objects: a deleted group holds its object up",
    guarantee: "G70",
    file: "src/streams/core/books.ts",
    find: 'if (kind === "group_deleted") bare(book).byId.delete(group);',
    replace: 'if (kind === "group_deleted") bare(book).byId.delete(`${group}!`);',
    caughtBy: { file: PARTS_TEST, test: KEPT_PARTS },
  },
  {
    name: "objects: identities without their part are let in",
    guarantee: "G26",
    file: "src/streams/server/compose.ts",
    find: "if (authorize !== undefined && guard === undefined) {",
    replace: "if (authorize === undefined && guard !== undefined && guard === undefined) {",
    caughtBy: {
      file: "src/streams/server/server-part.test.ts",
      test: "options that need a part > authorize is refused without it, by its name",
    },
  },
  {
    name: "objects: a failed commit leaves its rows",
    guarantee: "G70",
    file: STORE,
    find: "const rows = this.#database.inTransaction(() => {",
    replace: "const rows = (<T>(run: () => T): T => run())(() => {",
    caughtBy: { file: STORE_TEST, test: FRAMES },
  },
  {
    name: "objects: the store acknowledges a commit before it writes it",
    guarantee: "G70",
    file: STORE,
    find: "      const written = this.#rows.write(table, row, frame);",
    replace:
      "      const written = 1; this.#clock.after(30, () => { this.#rows.write(table, row, frame); });",
    caughtBy: {
      file: TEST,
      test: "streams in objects > G70 what was acknowledged is there after every kill, once",
    },
  },
  {
    name: "objects: pages lose what a small last page had",
    guarantee: "G70",
    file: PAGES,
    find: "    for (const [index, piece] of last.pieces.entries()) page.add(piece, timeOf(last, index));",
    replace: "",
    caughtBy: { file: STORE_TEST, test: IN_PAGES },
  },
  {
    name: "objects: a damaged snapshot is refused, and the older one not looked at",
    guarantee: "G70",
    file: RECOVERY,
    find: "      warnings.push(error.message);",
    replace: "      throw error;",
    caughtBy: {
      file: STORE_TEST,
      test: "the store of an object > G70 a snapshot with any changed byte is passed over for the older one",
    },
  },
  {
    name: "objects: a wake replays every commit, and no snapshot",
    guarantee: "G71",
    file: RECOVERY,
    find: "  for (const lsn of manifest.snapshots) {",
    replace: "  for (const lsn of manifest.snapshots.slice(2)) {",
    caughtBy: {
      file: STORE_TEST,
      test: "the store of an object > G71 an object with 100,000 keys wakes in 200 ms, and reads fewer than 20 rows",
    },
  },
  {
    name: "objects: a reader's place is not kept",
    guarantee: "G72",
    file: SOCKET,
    find: "          ...place,\n          sent: this.#sent,",
    replace: "          ...place,\n          offset: 0,\n          sent: this.#sent,",
    caughtBy: {
      file: TEST,
      test: "streams in objects > G72 an object sleeps while a reader stays, and the reader goes on where it was",
    },
  },
  {
    name: "objects: a bridged reader has timers, which keep its object awake",
    guarantee: "G72",
    file: CONNECTION,
    find: "      bridge.lives(lifeMs);\n      return;",
    replace: "      bridge.lives(lifeMs);",
    caughtBy: {
      file: TEST,
      test: "streams in objects > G72 an object sleeps while a reader stays, and the reader goes on where it was",
    },
  },
  {
    name: "objects: an alarm that an earlier life has lost is not set again",
    guarantee: "G72",
    file: "src/streams/runtimes/object-clock.ts",
    find: "    if (atMs !== null && atMs > this.nowMs()) this.#armedMs = atMs;",
    replace: "    if (atMs !== null) this.#armedMs = atMs;",
    caughtBy: {
      file: "src/streams/runtimes/object-clock.test.ts",
      test: "an alarm that was lost is set again at the next wake",
    },
  },
  {
    name: "objects: a wake sets an alarm later than the one that is there",
    guarantee: "G72",
    file: "src/streams/runtimes/object-clock.ts",
    find: "    if (firstMs >= this.#armedMs) return;",
    replace: "    if (firstMs === Infinity) return;",
    caughtBy: {
      file: "src/streams/runtimes/object-clock.test.ts",
      test: "after a wake the alarm is never later than what waits, and an earlier one stays",
    },
  },
  {
    name: "objects: a database is filled to its end",
    guarantee: "G73",
    file: ROOM,
    find: "    const left = free - needed - 2 * RESERVE_BYTES;",
    replace: "    const left = Number.MAX_SAFE_INTEGER;",
    caughtBy: {
      file: TEST,
      test: "a full object > G73 refuses writes before the database is full, and takes them again after a delete",
    },
  },
];
