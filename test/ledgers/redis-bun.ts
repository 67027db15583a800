/** The contract of ledgers over the Redis client of Bun, which runs this file: `bun run redis-bun.ts <url>`. */

import { ledgerConformance } from "../../src/testing/ledger-conformance.ts";
import { redisLedger } from "../../src/toolkit/ledgers/redis.ts";

interface BunRedis {
  send(command: string, parts: string[]): Promise<unknown>;
  close(): void;
}

const [, , url = ""] = process.argv;
// By a variable: the compiler does not look for the module.
const name: string = "bun";
const { RedisClient } = (await import(name)) as {
  readonly RedisClient: new (url: string) => BunRedis;
};
const clients: BunRedis[] = [];
const wrong: string[] = [];
const cases = ledgerConformance.filter(({ needs }) => needs === "nothing");
for (const { title, run } of cases) {
  try {
    await run<never>({
      async open() {
        const client = new RedisClient(url);
        clients.push(client);
        const ledger = redisLedger(client);
        await ledger.migrate();
        return ledger;
      },
      write: () => Promise.reject(new Error("there is no transaction to write in")),
      read: () => Promise.resolve([]),
    });
  } catch (error) {
    wrong.push(`${title}: ${error instanceof Error ? error.stack : String(error)}`);
  }
}
for (const client of clients) client.close();
console.log(JSON.stringify({ held: cases.length - wrong.length, wrong }));
