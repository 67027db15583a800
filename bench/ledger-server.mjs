/**
 * An API to be measured, in a process of its own: `node ledger-server.mjs <kind> <database> [counted]`. Each request inserts one
 * row. `bare` does it in the client's own BEGIN, INSERT, COMMIT, `keyed` behind idempotency keys in the same database. With `counted`
 * it counts what goes to the database, and answers any message with that.
 */

import { createServer } from "node:http";
import Database from "libsql";
import { Counter, noting } from "./counting.mjs";
import { createIdempotency, GLOBAL } from "../dist/toolkit/idempotency.js";
import { withIdempotency } from "../dist/toolkit/idempotency/node.js";
import { sqliteLedger } from "../dist/toolkit/ledgers/sqlite.js";

const [, , kind, file, isCounted] = process.argv;
const counter = new Counter();
const opened = new Database(file);
const connection = isCounted === undefined ? opened : noting(opened, counter);
connection.exec("PRAGMA journal_mode = WAL");
connection.exec("PRAGMA synchronous = FULL");
connection.exec("CREATE TABLE IF NOT EXISTS payments (id INTEGER PRIMARY KEY, cents INTEGER)");
const ledger = sqliteLedger(() => connection);
await ledger.migrate();
const insert = (tx, cents) => tx.prepare("INSERT INTO payments (cents) VALUES (?)").run(cents);

async function readJson(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return JSON.parse(Buffer.concat(chunks).toString("utf8"));
}

function answer(response, body) {
  response.writeHead(201, { "Content-Type": "application/json" });
  response.end(JSON.stringify(body));
}

const bare = async (request, response) => {
  const { cents } = await readJson(request);
  // In one turn: requests follow each other by themselves.
  connection.exec("BEGIN IMMEDIATE");
  insert(connection, cents);
  connection.exec("COMMIT");
  answer(response, { cents });
};

const engine = createIdempotency(ledger, { scope: GLOBAL });
const keyed = withIdempotency(engine, async (request, response) => {
  const { cents } = await readJson(request);
  insert(engine.contextOf(request).tx, cents);
  answer(response, { cents });
});

const server = createServer(kind === "bare" ? bare : keyed);
server.listen(0, "127.0.0.1", () => process.send({ port: server.address().port }));
process.on("message", () => {
  const { statements, trips, commits } = counter;
  counter.reset();
  process.send({ statements, trips, commits });
});
process.on("disconnect", () => process.exit(0));
