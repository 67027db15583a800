// The server of the crash tests: the built one, on a journal with sizes that a test chooses, so that kills
// fall into rolls, snapshots and compaction. `fault` makes it a server that breaks its promise.
//
//   node test/crash/server.mjs '{"dir":"…","segmentBytes":65536,"snapshotBytes":131072}'

import { startNodeServer } from "../../dist/streams/runtimes/node.js";
import { openFileStore } from "../../dist/streams/stores/file.js";

const { dir, port = 0, fault, ...sizes } = JSON.parse(process.argv[2] ?? "{}");
const journal = await openFileStore(dir, {
  ...sizes,
  onWarning: (warning) => console.error(`warning: ${warning}`),
});
const store = broken(journal);
const server = await startNodeServer({ store, port });

process.on("message", (message) => {
  if (message !== "maintain") return;
  journal.maintain().then(
    () => process.send({ maintained: true, ...journal.stats() }),
    (error) => process.send({ maintained: false, reason: String(error) }),
  );
});
process.once("SIGTERM", () => void server.stop().then(() => process.exit(0)));
// The test process has ended: nothing else would stop this one.
process.on("disconnect", () => process.exit(0));
console.log(`hapax listening on ${server.url} (durability: ${server.durability})`);

function broken(inner) {
  if (fault === "acknowledges-early") return acknowledgesEarly(inner);
  if (fault === "forgets-producers") forgetProducers(inner.world);
  if (fault === "forgets-keys") forgetKeys(inner.world);
  return inner;
}

/** Answers first and writes then: what is killed in between was promised and is not there. */
function acknowledgesEarly(inner) {
  let last = Promise.resolve();
  return {
    supports: inner.supports,
    world: inner.world,
    room: inner.room,
    commit(changes) {
      last = last
        .then(() => new Promise((resolve) => setTimeout(resolve, 5)))
        .then(() => inner.commit(changes));
      return Promise.resolve();
    },
    read: (...range) => inner.read(...range),
    stats: () => inner.stats(),
    close: () => inner.close(),
  };
}

/** Comes back with the data but without the last number of each producer. */
function forgetProducers(world) {
  for (const state of world.byId.values()) {
    for (const [id, known] of state.producers ?? []) {
      if (known.lastSequence > 0) known.lastSequence -= 1;
      else state.producers.delete(id);
    }
  }
}

/** Comes back with the data but without its idempotency keys. */
function forgetKeys(world) {
  for (const state of world.byId.values()) {
    if (state.keys !== undefined) state.keys = { policy: state.keys.policy, window: undefined };
  }
}
