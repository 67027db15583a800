/**
 * A receiver of webhooks. The sender delivers each event three times, some of them at once, as senders do. The handler
 * fails now and then. Every event is booked once.
 *
 *   npm run build && node examples/webhook-receiver.mjs
 */

import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";
import { isHapaxError } from "hapax";
import { createInbox } from "hapax/ledger";
import { sqliteLedger } from "hapax/ledgers/sqlite";
import Database from "libsql";

const SECRET = "whsec_example";
const DAY_MS = 86_400_000;
const sign = (body) => createHmac("sha256", SECRET).update(body).digest();

const ledger = sqliteLedger(() => new Database(":memory:"));
await ledger.migrate();
await ledger.transaction(async (tx) =>
  tx.exec("CREATE TABLE bookings (event TEXT, cents INTEGER)"),
);
// The sender repeats for three days: the inbox refuses a shorter retention.
const inbox = createInbox(ledger, {
  consumer: "bookkeeping",
  retainMs: 7 * DAY_MS,
  senderHorizonMs: 3 * DAY_MS,
});

const counts = { handled: 0, duplicate: 0, failed: 0 };

async function receive(request, response) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  const given = Buffer.from(request.headers["x-signature"] ?? "", "hex");
  const expected = sign(body);
  if (given.length !== expected.length || !timingSafeEqual(given, expected)) {
    response.writeHead(401).end();
    return;
  }
  const { id, cents, sentAtMs, isHard } = JSON.parse(body.toString("utf8"));
  try {
    const message = { scope: "payments", key: id };
    const book = (tx) => {
      tx.prepare("INSERT INTO bookings (event, cents) VALUES (?, ?)").run(id, cents);
      if (isHard && counts.failed === 0) throw new Error("out of luck");
    };
    const { isDuplicate } = await inbox.handle(message, book, { sentAtMs });
    counts[isDuplicate ? "duplicate" : "handled"] += 1;
    response.writeHead(200).end();
  } catch (error) {
    counts.failed += 1;
    // Older than the retention: the inbox cannot know whether it was handled, so a person must look.
    response.writeHead(isHapaxError(error, "key_expired") ? 422 : 500).end();
  }
}

const server = createServer((request, response) => void receive(request, response)).listen(0);
await new Promise((resolve) => server.once("listening", resolve));
const url = `http://127.0.0.1:${server.address().port}/`;

async function deliver(event) {
  const body = JSON.stringify(event);
  const headers = { "x-signature": sign(Buffer.from(body)).toString("hex") };
  const { status } = await fetch(url, { method: "POST", body, headers });
  return status;
}

for (let number = 1; number <= 50; number += 1) {
  const sentAtMs = Date.now();
  const event = { id: `evt_${number}`, cents: 100, sentAtMs, isHard: number === 25 };
  await Promise.all([deliver(event), deliver(event)]);
  await deliver(event);
}
const old = await deliver({ id: "evt_0", cents: 100, sentAtMs: Date.now() - 30 * DAY_MS });
const forged = await fetch(url, { method: "POST", body: "{}" });

const { rows } = await ledger.transaction(async (tx) =>
  tx.prepare("SELECT COUNT(*) AS rows FROM bookings").get(),
);
console.log(
  `150 deliveries of 50 events: ${JSON.stringify({ ...counts, failed: counts.failed - 1 })}`,
);
console.log(`${rows} bookings; an event of last month: ${old}; a forged one: ${forged.status}`);
server.closeAllConnections();
server.close();
