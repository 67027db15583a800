// A server process that stops itself (SIGSTOP) at one statement of its store: before it is sent, right after, or after its answer.
//
//   node test/postgres/fenced-owner.mjs '{"host":"…","schema":"…"}'
//   in   { take: { at, point, losesAnswers } }   opens the store, which takes the streams over, and listens
//   in   { drop: true }                          closes both
//   out  { url, epoch } | { dropped }            and "stopping <statement>" on standard output
import { writeSync } from "node:fs";
import pg from "pg";
import { startNodeServer } from "../../dist/streams/runtimes/node.js";
import { pgSession } from "../../dist/streams/stores/postgres/clients.js";
import { openOnSession } from "../../dist/streams/stores/postgres/postgres-store.js";

const { host, schema } = JSON.parse(process.argv[2] ?? "{}");
const pool = new pg.Pool({ host, user: "postgres", database: "postgres", max: 8 });
pool.on("error", () => undefined);
let server;
let armed;
let statements = 0;
let commits = 0;
let losesAnswers = false;

function stop(text) {
  armed = undefined;
  const [, verb = "SELECT", table = ""] =
    /(INSERT INTO|DELETE FROM|CREATE TABLE IF NOT EXISTS|DROP TABLE|UPDATE) "?\w+"?\.(hapax_[a-z_]+)/.exec(
      text,
    ) ?? [];
  writeSync(1, `stopping ${verb} ${table}\n`);
  process.kill(process.pid, "SIGSTOP");
}

const inner = pgSession(pool);
const session = {
  async run(text, values) {
    // A sign of life is no part of the path of a commit.
    if (text.includes("beat = beat + 1") || armed === undefined) return inner.run(text, values);
    statements += 1;
    const isHit = statements === armed.at;
    if (isHit && armed.point === "before") stop(text);
    const running = inner.run(text, values);
    if (isHit && armed?.point === "sent") setImmediate(() => stop(text));
    const answer = await running;
    if (isHit && armed?.point === "after") stop(text);
    const isCommit = text.includes("hapax_seg_") && text.includes("INSERT INTO");
    if (isCommit) commits += 1;
    if (isCommit && losesAnswers && commits % 4 === 1) throw new Error("the answer was lost");
    return answer;
  },
  close: () => Promise.resolve(),
};

async function take(order) {
  armed = undefined;
  const store = await openOnSession(session, {
    schema,
    durability: "os",
    takeover: "now",
    leaseMs: 1000,
    segmentBytes: 32_768,
    snapshotBytes: 32_768,
  });
  server = await startNodeServer({ store, port: 0, onAudit: () => undefined });
  [statements, commits, losesAnswers] = [0, 0, order.losesAnswers];
  if (order.at > 0) armed = order;
  process.send({ url: server.url, epoch: store.epoch });
}

async function drop() {
  armed = undefined;
  await server?.stop().catch(() => undefined);
  server = undefined;
  process.send({ dropped: true });
}

let last = Promise.resolve();
process.on("message", (message) => {
  last = last.then(() => (message.take === undefined ? drop() : take(message.take)));
  last.catch((error) => {
    console.error(error);
    process.exit(1);
  });
});
process.on("disconnect", () => process.exit(0));
