/** Stores in the PostgreSQL of the tests, with processes that can be killed and statements that go wrong. */

import type pg from "pg";
import { systemRandom } from "../../src/base/random.ts";
import { pgSession } from "../../src/streams/stores/postgres/clients.ts";
import type { PostgresStore, PostgresStoreOptions } from "../../src/streams/stores/postgres.ts";
import { openOnSession, openOnTables } from "../../src/streams/stores/postgres/postgres-store.ts";
import { PostgresTables } from "../../src/streams/stores/postgres/postgres-tables.ts";
import { openTables, quoteSchema } from "../../src/streams/stores/postgres/schema.ts";
import { type Session, StatementRefused } from "../../src/streams/stores/postgres/session.ts";
import type { Store } from "../../src/streams/store.ts";
import type { OpenStore } from "../../src/testing/store-conformance.ts";

/** The server of the tests has fsync off, so no more than this can be asked for. */
export const OPTIONS: PostgresStoreOptions = {
  durability: "os",
  takeover: "now",
  leaseMs: 1000,
  segmentBytes: 32_768,
  snapshotBytes: 1 << 30,
};

let schemas = 0;

/** A schema that no other test has. */
export function freshSchema(): string {
  schemas += 1;
  return `case_${process.pid}_${schemas}`;
}

/** What happens to statements. */
export interface Harm {
  isKilled: boolean;
  /** Called before each statement. May throw in its place. */
  before?: ((text: string) => void | Promise<void>) | undefined;
  /** Called after each statement. May throw in place of its answer. */
  after?: ((text: string) => void | Promise<void>) | undefined;
}

/** A session whose process can be killed: from then on none of its calls is answered. */
export function harmed(inner: Session, harm: Harm): Session {
  return {
    async run(text, values) {
      if (harm.isKilled) return new Promise(() => undefined);
      await harm.before?.(text);
      const answer = await inner.run(text, values);
      await harm.after?.(text);
      return harm.isKilled ? new Promise(() => undefined) : answer;
    },
    close: () => inner.close(),
  };
}

/** Opens a store over a pool. */
export function openOnPool(
  pool: pg.Pool,
  options: PostgresStoreOptions,
  harm: Harm = { isKilled: false },
): Promise<PostgresStore> {
  return openOnSession(harmed(pgSession(pool), harm), { ...OPTIONS, ...options });
}

export function isCommit(text: string): boolean {
  return text.includes("hapax_seg_") && text.includes("INSERT INTO");
}

/** A store of its own for each case of a conformance suite. */
export function onPool(pool: pg.Pool, options: PostgresStoreOptions = {}): OpenStore {
  const schema = freshSchema();
  return opened((harm) => openOnPool(pool, { ...options, schema }, harm));
}

/** One shard of a cluster, as a node opens it. The other shards have what other cases have left there. */
export function onShard(pool: pg.Pool, schema: string, shard: number, shards: number): OpenStore {
  return opened(async (harm) => {
    const session = harmed(pgSession(pool), harm);
    const quoted = quoteSchema(schema);
    const cluster = await openTables(session, quoted, systemRandom, shards);
    const tables = new PostgresTables(session, { schema: quoted, shard, keepsPromise: () => true });
    return openOnTables(tables, cluster, OPTIONS, () => session.close());
  });
}

function opened(openWith: (harm: Harm) => Promise<Store>): OpenStore {
  const harms = new Map<Store, Harm>();
  const open = async (): Promise<Store> => {
    const harm: Harm = { isKilled: false };
    const store = await openWith(harm);
    harms.set(store, harm);
    return store;
  };
  return {
    isDurable: true,
    open,
    takeOver: open,
    async abandon(store) {
      const harm = harms.get(store);
      if (harm !== undefined) harm.isKilled = true;
    },
    failNextCommit(store) {
      const harm = harms.get(store);
      if (harm === undefined) return;
      harm.before = (text) => {
        if (isCommit(text)) throw new StatementRefused("42501", "permission denied");
      };
    },
  };
}
