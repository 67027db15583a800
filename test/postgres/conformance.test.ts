// The store in PostgreSQL keeps the contract of every store, on a real server.
import { afterAll, beforeAll, describe, test } from "vitest";
import { type OpenStore, storeConformance } from "../../src/testing/store-conformance.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { freshSchema, onPool, onShard } from "./kit.ts";

const SHARDS = 16;

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
  const schemas = new Map<number, string>();
  const shardOf = (at: number): OpenStore => {
    const round = Math.floor(at / SHARDS);
    const schema = schemas.get(round) ?? freshSchema();
    schemas.set(round, schema);
    return onShard(server.pool, schema, at % SHARDS, SHARDS);
  };
  for (const [at, { name, run }] of storeConformance(all).entries()) {
    test(`in one of ${SHARDS} shards: ${name}`, () => run(shardOf(at)));
    test(`from the cache: ${name}`, () => run(onPool(server.pool)));
    test(`from rows: ${name}`, () => run(onPool(server.pool, { cacheBytes: 0 })));
  }
});
