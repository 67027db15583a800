/**
 * Faults of callers: what would send an operation under two keys, under one that is forgotten, or with other content. And
 * of processes that stood still: what would let them write when another process has their work.
 */
const FETCH = "src/toolkit/idempotency/fetch.test.ts";
const STORES = "src/toolkit/idempotency/key-store.test.ts";
const RULES = "src/toolkit/rules/caller-key.test.ts";
const ZOMBIES = "test/heavy/ledger-zombies.test.ts";
export const callerFaults = [
  {
    name: "a late answer brings a key back that was freed",
    guarantee: "G26",
    file: "src/toolkit/idempotency/key-store.ts",
    find: "      if (find(operation)?.key !== record.key) return;",
    replace: "      if ((find(operation)?.key ?? record.key) !== record.key) return;",
    caughtBy: {
      file: "src/toolkit/idempotency/fetch.test.ts",
      test: "a late answer in one caller gives no key back that another has freed",
    },
  },
  {
    name: "a call is sent before its key is kept",
    guarantee: "G26",
    file: "src/toolkit/idempotency/fetch.ts",
    find: "const record = await store.put(operation, fresh);",
    replace: "const record: KeyRecord = fresh;\n    void store.put(operation, fresh);",
    caughtBy: {
      file: FETCH,
      test: "nothing is sent before the store has said that the key is kept",
    },
  },
  {
    name: "every attempt has a key of its own",
    guarantee: "G26",
    file: "src/toolkit/idempotency/fetch.ts",
    find: 'headers.set(keyHeader, (keySyntax === "quoted" ? encodeKey(key) : undefined) ?? key);',
    replace:
      'headers.set(keyHeader, keySyntax === "quoted" ? `"${this.#options.random.id()}"` : key);',
    caughtBy: {
      file: FETCH,
      test: "is the same in all attempts, also in those of another process and at once",
    },
  },
  {
    name: "the second key of an operation takes the place of the first",
    guarantee: "G26",
    file: "src/toolkit/idempotency/key-store.ts",
    find: "      if (there !== undefined) return there;\n",
    replace: "      if (there?.key === record.key) return there;\n",
    caughtBy: {
      file: STORES,
      test: "storage > of many keys for one operation the first stays, and every caller gets that one",
    },
  },
  {
    name: "of two processes the second writes over the key of the first",
    guarantee: "G26",
    file: "src/toolkit/idempotency/key-file.ts",
    find: "await fs.link(written, path);",
    replace: "await fs.rename(written, path);",
    caughtBy: {
      file: STORES,
      test: "file > of many keys for one operation the first stays, and every caller gets that one",
    },
  },
  {
    name: "a call is sent when its key may be forgotten",
    guarantee: "G26",
    file: "src/toolkit/rules/caller-key.ts",
    find: "return nowMs + timeoutMs > lastMs(record, windowMs)",
    replace: "return nowMs + timeoutMs > Infinity * lastMs(record, windowMs)",
    caughtBy: {
      file: RULES,
      test: "sends if and only if the attempt ends within the window and before the expiry",
    },
  },
  {
    name: "what the server says of a key is not kept",
    guarantee: "G26",
    file: "src/toolkit/idempotency/fetch.ts",
    find: "if (next !== used.record) await store.update(call.operation, next);",
    replace: "",
    caughtBy: {
      file: FETCH,
      test: "what the server says of a key counts after a restart, by the server's own clock",
    },
  },
  {
    name: "patience may outlast the window",
    guarantee: "G26",
    file: "src/toolkit/idempotency/fetch-options.ts",
    find: 'check.whole("retry.totalMs", retry.totalMs, totalMs, 0, patienceMs)',
    replace: 'check.whole("retry.totalMs", retry.totalMs, totalMs, 0, patienceMs * 10)',
    caughtBy: {
      file: FETCH,
      test: "patience that could outlast the window is refused, with all other problems",
    },
  },
  {
    name: "the name of an operation takes any content",
    guarantee: "G26",
    file: "src/toolkit/rules/caller-key.ts",
    find: '  if (record.digest !== attempt.digest) return "reused";\n',
    replace: "",
    caughtBy: {
      file: FETCH,
      test: "a name that was used for another content is refused before anything is sent",
    },
  },
  {
    name: "a part of an answer is taken for the answer",
    guarantee: "G26",
    file: "src/toolkit/idempotency/fetch.ts",
    find: "const bytes = await unlessAborted(response.clone().arrayBuffer(), ended.signal);",
    replace: "const bytes = new ArrayBuffer(0);",
    caughtBy: {
      file: FETCH,
      test: "an answer that ends before its end is no answer",
    },
  },
  {
    name: "Retry-After is not waited for",
    guarantee: "G26",
    file: "src/toolkit/idempotency/fetch.ts",
    find: "return Math.max(ownMs, retryAfterMsOf(heard.response.headers, nowMs));",
    replace: "return Math.min(ownMs, 1 + retryAfterMsOf(heard.response.headers, nowMs));",
    caughtBy: {
      file: FETCH,
      test: "Retry-After is waited for, as seconds and as a date",
    },
  },
  {
    name: "a process that has lost its lease may commit",
    guarantee: "G29",
    file: "src/toolkit/once/lease.ts",
    find: 'if (entry?.token !== token || entry.state !== "running") {',
    replace: "if ((entry?.token ?? 0) > token + 1_000_000) {",
    caughtBy: {
      file: ZOMBIES,
      test: "SQLite > G29 a lease: stopped at lease.decided beyond its lease, it can neither write nor record",
    },
  },
  {
    name: "a process that has lost its claim may record",
    guarantee: "G25",
    file: "src/toolkit/once/claiming.ts",
    find: "    if (written !== undefined) return;\n",
    replace: "    if (written !== undefined || this.attempts > 0) return;\n",
    caughtBy: {
      file: ZOMBIES,
      test: "SQLite > G25 processOnce with a receiver that takes keys: stopped at once.worked beyond its lease, it can neither write nor record",
    },
  },
];
