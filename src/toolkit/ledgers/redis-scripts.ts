/**
 * The scripts of a ledger in Redis. Each runs alone on the server, from its first line to its last, so each is a transaction
 * of its own (LG2). A script that fails on its way is not undone: so every script looks first and writes last, and the first
 * line has the server refuse it as a whole (`#!lua`) when there is no room.
 *
 * Keys of one shard. `T` is `{prefix:shard}`: the braces keep them together in one slot of a cluster. Every key that a
 * script touches is passed to it, because a cluster that moves a slot only knows those.
 *
 *   T:ledger          hash: `layout` (version of this format and number of shards), `token` (the last that was given)
 *   T:entry:<id>      hash: an entry; `id` is the JSON of [kind, scope, key]
 *   T:<state>:<kind>  sorted set: ids in this state by their first token, which is the order in which they were made
 *   T:due:<kind>      sorted set: ids that are running, by the end of their lease
 *   T:expiry          sorted set: ids by the moment from which on they may be deleted
 *
 * Fields of an entry: token, revision, state, attempts, lease_until, lease_ms, expires_at, made_at, fingerprint, data (base64:
 * clients read replies as UTF-8) and `by`, a random id of the write. A client that lost its connection may send a command
 * twice; the second one finds its own id there and gets the same answer.
 *
 * Times are microseconds since 1970 by the server's clock (LG4), which stay exact in Lua's numbers until the year 2255.
 */

import type { RedisScript } from "../databases/redis.ts";

const NOW = `
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]`;

/** Of what `EXPECTED` has found. */
const FIELDS = "'token', 'revision', 'state', 'made_at', 'by'";

/** KEYS: entry. ARGV: kind of expectation, token, revision. Leaves `had` and `isExpected`. */
const EXPECTED = `
local had = redis.call('HMGET', KEYS[1], ${FIELDS})
local isExpected
if ARGV[1] == 'absent' then
  isExpected = not had[1]
elseif ARGV[1] == 'unchanged' then
  isExpected = had[1] == ARGV[2] and had[2] == ARGV[3]
else
  isExpected = had[1] == ARGV[2] and had[3] == 'running'
end`;

/** KEYS: entry, due, expiry, the four states; with `STATES` from the fourth on. ARGV[4] is the id. */
const STATES = `
local states = { running = KEYS[4], released = KEYS[5], done = KEYS[6], failed = KEYS[7] }`;

/**
 * KEYS: as STATES, then ledger. ARGV: expectation (3), id, layout, by, state, "next" or "same", attempts, lease in
 * microseconds, lease in milliseconds, retention in microseconds (each empty: none), fingerprint, data ("=": as it was, "-":
 * none, "+…": this one), and something if the server may delete entries.
 * Returns token and revision; nothing if the entry is not as expected; the layout that is there if it is another one; "deleted" if
 * there is no entry and a set still has its id: the server, or a person, has deleted it.
 */
const PUT = `${EXPECTED}
local ledger = redis.call('HMGET', KEYS[8], 'layout', 'token')
if ledger[1] ~= ARGV[5] then return { 'layout', ledger[1] } end
if had[5] == ARGV[6] then
  redis.call('HSET', KEYS[1], 'by', ARGV[6])
  return { had[1], had[2] }
end
if not isExpected then return false end
for at = 4, ARGV[1] == 'absent' and 7 or 0 do
  if redis.call('ZSCORE', KEYS[at], ARGV[4]) then
    if ARGV[15] == '' then return { 'deleted' } end
    redis.call('ZREM', KEYS[at], ARGV[4])
  end
end
${NOW}
${STATES}
local function text(number) return string.format('%.0f', number) end
local token = had[1]
if ARGV[8] == 'next' or not token then
  token = text(math.max(tonumber(ledger[2] or 0) + 1, now))
  redis.call('HSET', KEYS[8], 'token', token)
end
local revision = text((had[2] or 0) + 1)
local made = had[4] or token
redis.call('HSET', KEYS[1], 'token', token, 'revision', revision, 'state', ARGV[7], 'attempts', ARGV[9],
  'made_at', made, 'by', ARGV[6])
local function keep(field, value)
  if value == false then redis.call('HDEL', KEYS[1], field) else redis.call('HSET', KEYS[1], field, value) end
end
local leaseUntil = ARGV[10] ~= '' and now + ARGV[10]
local expiresAt = ARGV[12] ~= '' and now + ARGV[12]
keep('lease_until', leaseUntil and text(leaseUntil))
keep('lease_ms', leaseUntil and ARGV[11])
keep('expires_at', expiresAt and text(expiresAt))
for at, field in pairs({ [13] = 'fingerprint', [14] = 'data' }) do
  local how = string.sub(ARGV[at], 1, 1)
  if how == '+' then keep(field, string.sub(ARGV[at], 2)) elseif how == '-' then keep(field, false) end
end
if had[3] ~= ARGV[7] then
  if had[3] then redis.call('ZREM', states[had[3]], ARGV[4]) end
  redis.call('ZADD', states[ARGV[7]], made, ARGV[4])
end
if ARGV[7] == 'running' and leaseUntil then
  redis.call('ZADD', KEYS[2], text(leaseUntil), ARGV[4])
  if expiresAt then expiresAt = math.max(expiresAt, leaseUntil) end
else
  redis.call('ZREM', KEYS[2], ARGV[4])
end
if expiresAt then redis.call('ZADD', KEYS[3], text(expiresAt), ARGV[4]) else redis.call('ZREM', KEYS[3], ARGV[4]) end
return { token, revision }`;

/** A new entry needs room. */
export const PUT_NEW: RedisScript = { text: `#!lua${PUT}` };

/** What was begun can be ended also when the memory is full. */
export const PUT_KNOWN: RedisScript = { text: `#!lua flags=allow-oom${PUT}` };

/** KEYS: as STATES. ARGV: expectation (3), id. Returns 1 or 0. */
export const REMOVE: RedisScript = {
  text: `#!lua flags=allow-oom${EXPECTED}
if not isExpected or not had[1] then return 0 end
${STATES}
redis.call('DEL', KEYS[1])
redis.call('ZREM', states[had[3]], ARGV[4])
redis.call('ZREM', KEYS[2], ARGV[4])
redis.call('ZREM', KEYS[3], ARGV[4])
return 1`,
};

/** KEYS: entries. Returns the time, then the fields of each entry; an entry that is not there has none. */
export const READ: RedisScript = {
  text: `#!lua flags=no-writes${NOW}
local found = { string.format('%.0f', now) }
for at, key in ipairs(KEYS) do
  found[at + 1] = redis.call('HMGET', key, 'token', 'revision', 'state', 'attempts', 'lease_until', 'lease_ms',
    'expires_at', 'made_at', 'fingerprint', 'data')
end
return found`,
};

/**
 * KEYS: a sorted set, and perhaps another one. ARGV: the least score, the greatest score or "now", how many. Returns the
 * time, the ids in order, their scores, and their scores in the other set.
 */
export const PAGE: RedisScript = {
  text: `#!lua flags=no-writes${NOW}
local time = string.format('%.0f', now)
local last = ARGV[2] == 'now' and time or ARGV[2]
local found = redis.call('ZRANGE', KEYS[1], ARGV[1], last, 'BYSCORE', 'LIMIT', 0, ARGV[3], 'WITHSCORES')
local ids, scores, others = {}, {}, {}
for at = 1, #found, 2 do
  ids[#ids + 1] = found[at]
  scores[#scores + 1] = found[at + 1]
  if KEYS[2] then others[#others + 1] = redis.call('ZSCORE', KEYS[2], found[at]) end
end
return { time, ids, scores, others }`,
};

/**
 * KEYS: expiry, due, the four states, then entries of one kind. ARGV: their ids. Deletes those that are over by now; returns
 * how many.
 */
export const SWEEP: RedisScript = {
  text: `#!lua flags=allow-oom${NOW}
local swept = 0
for at, id in ipairs(ARGV) do
  local over = redis.call('ZSCORE', KEYS[1], id)
  if over and tonumber(over) <= now then
    redis.call('DEL', KEYS[6 + at])
    for set = 1, 6 do redis.call('ZREM', KEYS[set], id) end
    swept = swept + 1
  end
end
return swept`,
};

/** KEYS: ledger. Returns what the server that has this key says of itself. */
export const INSPECT: RedisScript = {
  text: `#!lua flags=no-writes
local parts = { 'server', 'memory', 'persistence', 'replication', 'cluster' }
for at, part in ipairs(parts) do parts[at] = redis.call('INFO', part) end
return table.concat(parts, '\\n')`,
};

/** KEYS: ledger. ARGV: layout. Makes the ledger if there is none; returns the layout that it has. */
export const BEGIN: RedisScript = {
  text: `#!lua
redis.call('HSETNX', KEYS[1], 'layout', ARGV[1])
return redis.call('HGET', KEYS[1], 'layout')`,
};
