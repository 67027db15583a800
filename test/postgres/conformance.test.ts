// The store in PostgreSQL keeps the contract of every store, on a real server.
import { afterAll, beforeAll, describe, test } from "vitest";
import { storeConformance } from "../../src/testing/store-conformance.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { onPool } from "./kit.ts";

const reason = whyNoPostgres();
if (reason !== undefined) console.log(`the store in PostgreSQL is not tested: ${reason}`);

describe.skipIf(reason !== undefined)("the store in PostgreSQL", () => {
  let server: TestPostgres;

  beforeAll(async () => {
    server = await startPostgres();
  });

  afterAll(async () => {
    await server.stop();
  });

  const all = {
    isDurable: true,
    failNextCommit: () => undefined,
    takeOver: () => Promise.reject(),
  };
  for (const { name, run } of storeConformance(all)) {
    test(`from the cache: ${name}`, () => run(onPool(server.pool)));
    test(`from rows: ${name}`, () => run(onPool(server.pool, { cacheBytes: 0 })));
  }
});
