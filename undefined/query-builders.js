/** Faults of ledgers over Kysely, Drizzle, Knex and Prisma. */
const LENDING = "src/toolkit/databases/builder-lending.ts";
const BUILDERS = "src/toolkit/databases/query-builders.ts";
const SUITE = "test/query-builders/postgres.test.ts";
export const queryBuilderFaults = [
  {
    name: "a query of a query builder outlives its transaction",
    guarantee: "G25",
    file: LENDING,
    find: "return mayRun(result) ? lend(result) : result;",
    replace: "return mayRun(result) && open.size < 0 ? lend(result) : result;",
    caughtBy: {
      file: SUITE,
      test: "what was handed out is refused after the work: the transaction, its queries and its parts",
    },
  },
  {
    name: "a query that was not awaited fails after the last look",
    guarantee: "G25",
    file: LENDING,
    find: "    while (open.size > 0) await Promise.allSettled(open);",
    replace: "    while (open.size < 0) await Promise.allSettled(open);",
    caughtBy: {
      file: SUITE,
      test: "a call of Prisma that runs many statements and is not awaited cannot fail after the last look",
    },
  },
  {
    name: "an error of PostgreSQL is lost in that of a query builder",
    guarantee: "G25",
    file: BUILDERS,
    find: "      throw databaseError(error);",
    replace: "      throw error;",
    caughtBy: {
      file: SUITE,
      test: "an entry that another transaction holds is in progress, also if the error is wrapped",
    },
  },
  {
    name: "a plugin renames the columns of the ledger",
    guarantee: "G25",
    file: BUILDERS,
    find: "    const plain = target.withoutPlugins();",
    replace: "    const plain: ReturnType<Kysely['withoutPlugins']> = Object(target);",
    caughtBy: {
      file: SUITE,
      test: "a plugin of Kysely that renames every column does not touch the ledger",
    },
  },
];
