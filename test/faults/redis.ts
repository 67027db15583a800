/** Faults of the ledger in Redis: what would be claimed twice, lost without a word, or promised without a reason. */

import type { Fault } from "./faults.ts";

const SCRIPTS = "src/toolkit/ledgers/redis-scripts.ts";
const SERVER = "src/toolkit/ledgers/redis-server.ts";
const CONTRACT = "test/ledgers/redis-conformance.test.ts";
const OWN = "test/ledgers/redis.test.ts";
const CRASHES = "test/ledgers/redis-crashes.test.ts";
const PRIMITIVES = "test/once/redis.test.ts";

export const redisFaults: readonly Fault[] = [
  {
    name: "a claim in Redis is given to the next caller too",
    guarantee: "G25",
    file: SCRIPTS,
    find: "isExpected = not had[1]",
    replace: "isExpected = true",
    caughtBy: {
      file: CONTRACT,
      test: "Redis 7 > with ioredis > LG2 of many that make the same entry at once, one does",
    },
  },
  {
    name: "an owner in Redis writes what is done already",
    guarantee: "G25",
    file: SCRIPTS,
    find: "isExpected = had[1] == ARGV[2] and had[3] == 'running'",
    replace: "isExpected = had[1] == ARGV[2]",
    caughtBy: {
      file: CONTRACT,
      test: "Valkey 9 > with ioredis > LG2 an entry that is done, failed or released has no owner",
    },
  },
  {
    name: "a claim that Redis has deleted is given again",
    guarantee: "G56",
    file: SCRIPTS,
    find: "if ARGV[15] == '' then return { 'deleted' } end",
    replace: "if ARGV[15] == '-' then return { 'deleted' } end",
    caughtBy: {
      file: OWN,
      test: "G56 an entry that the server has deleted behind the ledger is not claimed again, and the error says so",
    },
  },
  {
    name: "a sweep in Redis deletes what runs under a lease",
    guarantee: "G25",
    file: SCRIPTS,
    find: "expiresAt = math.max(expiresAt, leaseUntil)",
    replace: "expiresAt = math.min(expiresAt, leaseUntil)",
    caughtBy: {
      file: CONTRACT,
      test: "Valkey 9 > with ioredis > LG8 a sweep deletes what is past its retention, so many at once, and nothing else",
    },
  },
  {
    name: "keys of a ledger are spread over a cluster one by one",
    guarantee: "G56",
    file: "src/toolkit/ledgers/redis-keys.ts",
    find: "const tag = `{${prefix}:${shard}}`;",
    replace: "const tag = `${prefix}:${shard}`;",
    caughtBy: {
      file: CONTRACT,
      test: "a cluster of three > with ioredis > LG2 of many that make the same entry at once, one does",
    },
  },
  {
    name: "tokens in Redis begin anew with the server",
    guarantee: "G56",
    file: SCRIPTS,
    find: "math.max(tonumber(ledger[2] or 0) + 1, now)",
    replace: "tonumber(ledger[2] or 0) + 1",
    caughtBy: {
      file: OWN,
      test: "a ledger in Redis > LG3 tokens are greater than those of a server that lost them, by the clock",
    },
  },
  {
    name: "a write that a client sends twice is refused the second time",
    guarantee: "G56",
    file: SCRIPTS,
    find: "if had[5] == ARGV[6] then",
    replace: "if had[5] == '' then",
    caughtBy: {
      file: OWN,
      test: "a ledger in Redis > LG2 a write that the client sends twice, because its answer was lost, is one write",
    },
  },
  {
    name: "a server that lost the ledger gives every claim again",
    guarantee: "G56",
    file: SCRIPTS,
    find: "if ledger[1] ~= ARGV[5] then",
    replace: "if ledger[1] and ledger[1] ~= ARGV[5] then",
    caughtBy: {
      file: OWN,
      test: "a ledger in Redis > a server that has lost the ledger refuses every claim, instead of giving it again",
    },
  },
  {
    name: "a full memory keeps work from being ended",
    guarantee: "G56",
    file: SCRIPTS,
    find: "{ text: `#!lua flags=allow-oom${PUT}` }",
    replace: "{ text: `#!lua${PUT}\n` }",
    caughtBy: {
      file: OWN,
      test: "a ledger in Redis > with a full memory nothing new is claimed, and what was begun can be ended",
    },
  },
  {
    name: "a server that deletes claims is taken",
    guarantee: "G56",
    file: SERVER,
    find: 'maxmemoryPolicy !== "noeviction" && !allowEviction',
    replace: 'maxmemoryPolicy === "unknown" && !allowEviction',
    caughtBy: {
      file: OWN,
      test: "a ledger in Redis > migrate > refuses a server that deletes entries when its memory is full",
    },
  },
  {
    name: "a write counts as confirmed by a connection that did not make it",
    guarantee: "G56",
    file: "src/toolkit/ledgers/redis-confirming.ts",
    find: "if (connection === before) {",
    replace: "if (connection === before || known !== undefined) {",
    caughtBy: {
      file: OWN,
      test: "a ledger in Redis > with durability waitaof > a write is confirmed by the server, also over a new connection",
    },
  },
  {
    name: "a write counts as confirmed by a connection that another call has met",
    guarantee: "G56",
    file: "src/toolkit/ledgers/redis-confirming.ts",
    find: "if (connection === before) {",
    replace: "if (connection === known && before !== undefined) {",
    caughtBy: {
      file: "src/toolkit/ledgers/redis-confirming.test.ts",
      test: "two writes at once that a power cut has lost are both made again before they count",
    },
  },
  {
    name: "a script that the server has forgotten is an error",
    guarantee: "G56",
    file: "src/toolkit/databases/redis.ts",
    find: "/NOSCRIPT|NoScript/",
    replace: "/NO SCRIPT/",
    caughtBy: {
      file: OWN,
      test: "a ledger in Redis > scripts go by their digest, and by their text after the server has forgotten them",
    },
  },
  {
    name: "the ledger does not say that a failover loses claims",
    guarantee: "G56",
    file: "src/toolkit/ledgers/redis.ts",
    find: 'durability: "server"',
    replace: 'durability: "database"',
    caughtBy: {
      file: CRASHES,
      test: "controls that must fail > G56 a failover with a replica that lags loses claims, and the ledger had said so",
    },
  },
  {
    name: "an inbox without transactions takes an old message for a new one",
    guarantee: "G27",
    file: "src/toolkit/once/inbox.ts",
    find: 'if (age.kind === "expired") {',
    replace: 'if (age.kind === "expired" && tools.clock.nowMs() === 0) {',
    caughtBy: {
      file: PRIMITIVES,
      test: "on Redis > G27 a message has its effect once for each consumer, under a key that its work can pass on",
    },
  },
];
