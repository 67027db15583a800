/**
 * A payment API that cannot charge twice: `POST /pay` with an `Idempotency-Key`, on PostgreSQL. The payment and the record of its key
 * are one transaction. Replace the handler with your own.
 */

import { createServer } from "node:http";
import { createIdempotency, GLOBAL } from "hapax/idempotency";
import { withIdempotency } from "hapax/idempotency/node";
import { postgresLedger } from "hapax/ledgers/postgres";
import pg from "pg";

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
const ledger = postgresLedger(pool);
await ledger.migrate();
await pool.query("CREATE TABLE IF NOT EXISTS payments (cents integer NOT NULL)");

const idempotency = createIdempotency(ledger, { scope: GLOBAL });

const pay = withIdempotency(idempotency, async (request, response) => {
  let text = "";
  for await (const chunk of request.setEncoding("utf8")) text += chunk;
  const { cents } = JSON.parse(text);
  const { tx } = idempotency.contextOf(request);
  await tx.query("INSERT INTO payments (cents) VALUES ($1)", [cents]);
  response.writeHead(201, { "Content-Type": "application/json" });
  response.end(JSON.stringify({ paid: cents }));
});

const server = createServer((request, response) => {
  if (request.method === "POST" && request.url === "/pay") pay(request, response);
  else response.writeHead(request.url === "/livez" ? 200 : 404).end();
});
server.listen(Number(process.env.PORT ?? 8080), () => {
  console.log(`listening on port ${server.address().port}`);
});

process.once("SIGTERM", () => {
  server.close(() => {
    void pool.end().finally(() => process.exit(0));
  });
});
