/** Faults of transactions and consumers. */
const CONSUMER = "test/processing/consumer.test.ts";
const TRANSACTIONS = "test/processing/transactions.test.ts";
const [HELD, LANES] = ["src/client/processing/held.ts", "src/client/processing/lanes.ts"];
const MEMBERSHIP = "src/client/processing/membership.ts";
export const processingFaults = [
  {
    name: "processing: the offset is not in the transaction",
    guarantee: "G21",
    file: "src/client/processing/draft.ts",
    find: "    this.#other({ commit: { ...wireLease(lease), offset: to } });",
    replace: "    this.#other({ expect: wireLease(lease) });",
    caughtBy: {
      file: CONSUMER,
      test: "a transaction that commits a batch stores output and offset, and lets the next batch come",
    },
  },
  {
    name: "processing: a zombie's commit is sent without its token",
    guarantee: "G22",
    file: "src/client/processing/draft.ts",
    find: "    this.#other({ commit: { ...wireLease(lease), offset: to } });",
    replace: "    this.#other({ expect: { stream: `/no${lease.stream}`, absent: true } });",
    caughtBy: {
      file: CONSUMER,
      test: "a member that was paused beyond its lease stores nothing, and joins again",
    },
  },
  {
    name: "processing: a repetition comes under a new identity",
    guarantee: "G21",
    file: "src/client/whole-answers.ts",
    find: "    const answer = await transport(request);\n    const { status }",
    replace:
      '    const headers = { ...request.headers, "Producer-Epoch": String(Date.now()) };\n' +
      "    const answer = await transport({ ...request, headers });\n    const { status }",
    caughtBy: {
      file: TRANSACTIONS,
      test: "an answer that was cut in its body is asked for again",
    },
  },
  {
    name: "processing: the number of a refused transaction is used again",
    guarantee: "G21",
    file: LANES,
    find: "      lane.epoch += 1;\n      lane.sequence = 0;",
    replace: "      lane.sequence = sequence;",
    caughtBy: {
      file: TRANSACTIONS,
      test: "a handle whose transaction was given up goes on under another number",
    },
  },
  {
    name: "processing: a refusal is called certain while an attempt is on its way",
    guarantee: "G21",
    file: LANES,
    find: "    const isCertain = !settled.wasUnknown || FINAL.has(error.code);",
    replace: "    const isCertain = !settled.wasUnknown || FINAL.size > 0;",
    caughtBy: {
      file: TRANSACTIONS,
      test: "a refusal after an attempt without an answer is certain: the late attempt finds the door shut",
    },
  },
  {
    name: "processing: a lost attempt that was done after the refusal is reported as not stored",
    guarantee: "G21",
    file: LANES,
    find: '        return original.refusal === undefined ? original : "unknown";',
    replace: '        return original.refusal === undefined ? "used_up" : "unknown";',
    caughtBy: {
      file: TRANSACTIONS,
      test: "an attempt that arrives after the refusal, before the number is used up, is reported as committed",
    },
  },
  {
    name: "processing: data is encoded when it is sent and not when it is given",
    guarantee: "G21",
    file: "src/client/processing/draft.ts",
    find: "    const record = encode(data, createdAs ?? this.#codecs.known(stream));",
    replace:
      "    const first = encode(data, createdAs ?? this.#codecs.known(stream));\n" +
      '    const record = { ...first, get content() { return first.form === "json" ? JSON.stringify(data) : first.content; } } as Encoded;',
    caughtBy: {
      file: TRANSACTIONS,
      test: "data is stored as it was when it was given",
    },
  },
  {
    name: "processing: the heartbeat is forgotten",
    guarantee: "G22",
    file: MEMBERSHIP,
    find: "this.#claimedMs + (isEager ? Math.min(SHORT_MS_MAX, beatMs) : beatMs);",
    replace: "this.#claimedMs + (isEager ? beatMs : beatMs + SHORT_MS_MAX) * 180;",
    caughtBy: {
      file: CONSUMER,
      test: "a member is heard of while its worker takes longer than the lease, and loses nothing",
    },
  },
  {
    name: "processing: a batch is given before the one before it is committed",
    guarantee: "G22",
    file: MEMBERSHIP,
    find: "        if (batch.records.length > 0) await held.offer(batch);",
    replace: "        if (batch.records.length > 0) void held.offer(batch);",
    caughtBy: {
      file: CONSUMER,
      test: "the next batch of a stream comes only after the one before is committed or done",
    },
  },
  {
    name: "processing: what is asked back is not handed over before its time is over",
    guarantee: "G23",
    file: HELD,
    find: "    if (!isIdle || this.#done > this.#committed) return;",
    replace: '    if (!isIdle || this.#done >= "") return;',
    caughtBy: {
      file: CONSUMER,
      test: "a stream that is asked back is handed over after its batch, and nothing is done twice",
    },
  },
  {
    name: "processing: a worker that does not end is never told",
    guarantee: "G23",
    file: HELD,
    find: "    this.#cancelDeadline = afterMs(() => {\n      this.#host.handOver(this);\n    });",
    replace: "    this.#cancelDeadline = afterMs(() => undefined);",
    caughtBy: {
      file: CONSUMER,
      test: "a worker that holds a lease too long gets an abort before it loses it, and the other worker goes on",
    },
  },
  {
    name: "processing: a lease that was given back is taken up again",
    guarantee: "G22",
    file: MEMBERSHIP,
    find: "      if (!this.#held.has(token) && !this.#returned.has(token)) this.#adopt(claimed, token, member);",
    replace: "      if (!this.#held.has(token)) this.#adopt(claimed, token, member);",
    caughtBy: {
      file: CONSUMER,
      test: "a lease that was given back is not taken up again by an older answer",
    },
  },
  {
    name: "processing: done counts as committed",
    guarantee: "G22",
    file: HELD,
    find: "        this.#settle(batch.nextOffset, false);",
    replace: "        this.#settle(batch.nextOffset, true);",
    caughtBy: {
      file: CONSUMER,
      test: "the next batch of a stream comes only after the one before is committed or done",
    },
  },
  {
    name: "processing: the partition of a key changes",
    guarantee: "G21",
    file: "src/client/processing/partitioned.ts",
    find: "  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);",
    replace: "  hash = Math.imul(hash ^ (hash >>> 15), 0xc2b2ae35);",
    caughtBy: {
      file: "src/client/processing/partitioned.test.ts",
      test: "the partition of a key never changes",
    },
  },
];
