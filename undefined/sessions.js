/** Faults in what makes an append idempotent beyond declared epochs: sessions, If-Match, keys and patience. */
const producerFaults = [
  {
    name: "replaced nonces not remembered",
    guarantee: "G7",
    file: "src/streams/core/producer.ts",
    find: "  replaced.push(state.session);\n",
    replace: "",
    caughtBy: {
      file: "src/streams/core/session.test.ts",
      test: "P5 the last sixteen stay fenced with every sequence they send",
    },
  },
  {
    name: "the first append of a replaced session opens it again",
    guarantee: "G2",
    file: "src/streams/core/producer.ts",
    find: "  if (state?.replaced?.includes(session) === true) {",
    replace:
      "  if (claim.sequence !== SEQUENCE_ZERO && state?.replaced?.includes(session) === true) {",
    caughtBy: { file: "src/streams/core/session.test.ts", test: "P5 a replaced session, 0" },
  },
  {
    name: "the epoch of a session is open to who declares it",
    guarantee: "G7",
    file: "src/streams/core/producer.ts",
    find: `  if (state.session !== undefined) return { kind: "fenced", currentEpoch: state.epoch };\n`,
    replace: "",
    caughtBy: {
      file: "src/streams/core/session.test.ts",
      test: "P6 is closed to the client that declares it, at sequence 2",
    },
  },
  {
    name: "the epoch after the last one",
    guarantee: "G7",
    file: "src/streams/core/producer.ts",
    find: `  if (state.epoch === EPOCH_MAX) return { kind: "epoch_exhausted" };\n`,
    replace: "",
    caughtBy: { file: "src/streams/core/session.test.ts", test: "P5 the last epoch, 0" },
  },
  {
    name: "original end not kept",
    guarantee: "G2",
    file: "src/streams/core/producer.ts",
    find: "  state.recent[at] = end;\n",
    replace: "",
    caughtBy: {
      file: "src/streams/core/append-tail.test.ts",
      test: "G18 P7 is answered with its own end for the last 32 appends, and with the tail before that",
    },
  },
  {
    name: "a duplicate is answered with an end that is not kept",
    guarantee: "G2",
    file: "src/streams/core/producer.ts",
    find: "  if (sequence <= state.lastSequence - ENDS_KEPT) return undefined;\n",
    replace: "",
    caughtBy: {
      file: "src/streams/core/append-tail.test.ts",
      test: "G18 P7 is answered with its own end for the last 32 appends, and with the tail before that",
    },
  },
  {
    name: "a reset forgets the nonces",
    guarantee: "G7",
    file: "src/streams/core/producer.ts",
    find: "  retireSession(state);\n  state.epoch = EPOCH_ZERO;",
    replace: "  state.replaced = undefined;\n  state.epoch = EPOCH_ZERO;",
    caughtBy: {
      file: "src/streams/core/session.test.ts",
      test: "P5 every nonce that was known stays fenced, also the last one",
    },
  },
  {
    name: "a reset does not fence the last session",
    guarantee: "G7",
    file: "src/streams/core/producer.ts",
    find: "  retireSession(state);\n  state.epoch = EPOCH_ZERO;",
    replace: "  state.epoch = EPOCH_ZERO;",
    caughtBy: {
      file: "src/streams/engine/appends.test.ts",
      test: "P5 makes room after the last epoch, and leaves sessions fenced",
    },
  },
  {
    name: "a reset is answered before it is durable",
    guarantee: "G3",
    file: "src/streams/engine/commit.ts",
    find: "        if (state !== undefined) this.#advance(batch, state);\n",
    replace: "        void state;\n",
    caughtBy: {
      file: "src/streams/engine/appends.test.ts",
      test: "a refusal that a reset has caused waits for the reset",
    },
  },
  {
    name: "If-Match before the duplicate check",
    guarantee: "G2",
    file: "src/streams/core/append.ts",
    find: "  let mark: ProducerMark | undefined;\n",
    replace: `  if (expectedTail !== undefined && expectedTail !== state.tail) {
    return { kind: "tail_moved", tail: state.tail };
  }
  let mark: ProducerMark | undefined;
`,
    caughtBy: {
      file: "src/streams/core/append-tail.test.ts",
      test: "A5 with an epoch is a duplicate when it comes again",
    },
  },
  {
    name: "If-Match that names no tail is ignored",
    guarantee: "G6",
    file: "src/streams/core/append.ts",
    find: "  if (expectedTail !== undefined && expectedTail !== state.tail) {",
    replace: `  if (expectedTail !== undefined && expectedTail !== "none" && expectedTail !== state.tail) {`,
    caughtBy: {
      file: "src/streams/core/append-tail.test.ts",
      test: "A5 `none` matches no tail, not even the first",
    },
  },
];
const keyFaults = [
  {
    name: "key consumed by a refused append",
    guarantee: "G2",
    file: "src/streams/engine/appends.ts",
    find: "      writer.expiry.touch(state);\n",
    replace: `      if (command.key !== undefined && decision.kind === "tail_moved") {
        const { id: stream, keys } = state;
        const key = { mark: command.key.mark, ordinal: keys?.window?.next ?? 0, evictTo: 0 };
        const bare = { closes: false, producer: undefined, streamSeq: undefined };
        const change = { data: new Uint8Array(0), stream, key, ...bare } as const;
        writer.stage({ kind: "appended", atMs: writer.nowMs(), ...change });
      }
`,
    caughtBy: {
      file: "src/streams/engine/appends.test.ts",
      test: "KD4 a refused append does not consume its key",
    },
  },
  {
    name: "replay answered before its original is durable",
    guarantee: "G3",
    file: "src/streams/engine/appends.ts",
    find: "    return this.#writer.answer(name, state, outcome);\n",
    replace: `    if (outcome.kind === "replayed") return Promise.resolve(outcome);
    return this.#writer.answer(name, state, outcome);
`,
    caughtBy: {
      file: "src/streams/engine/appends.test.ts",
      test: "G3 W2 none of 20 with one key is answered before the commit, and one is accepted",
    },
  },
  {
    name: "a full window pushes out an uncommitted entry",
    guarantee: "G2",
    file: "src/streams/core/keys.ts",
    find: `  if (overflow === "evict" && isDurable) return`,
    replace: `  if (overflow === "evict" && (isDurable || true)) return`,
    caughtBy: {
      file: "src/streams/engine/appends.test.ts",
      test: "KD2 an uncommitted entry is not pushed out; once it is durable, it can be",
    },
  },
  {
    name: "an uncommitted entry is forgotten for its age",
    guarantee: "G2",
    file: "src/streams/core/keys.ts",
    find: "    if (ageMs < windowMs || window.endOf(ordinal) > scene.durableTail) {",
    replace: "    if (ageMs < windowMs) {",
    caughtBy: {
      file: "src/streams/core/keys.test.ts",
      test: "KD2 remembers a key beyond its time while its own append is not durable",
    },
  },
  {
    name: "the sweeper forgets an uncommitted entry",
    guarantee: "G2",
    file: "src/streams/core/keys.ts",
    find: "  while (first > window.first && window.endOf(first - 1) > durableTail) first -= 1;\n",
    replace: "  void durableTail;\n  first += 0;\n",
    caughtBy: {
      file: "src/streams/engine/key-sweeper.test.ts",
      test: "KD2 keeps a key while its own append is not durable, however late it is",
    },
  },
  {
    name: "window by the wall clock",
    guarantee: "G2",
    file: "src/streams/engine/writer.ts",
    find: "    return this.#time.nowMs();",
    replace: "    return Math.max(this.world.timeMs, this.clock.nowMs()) as TimeMs;",
    caughtBy: {
      file: "src/streams/engine/appends.test.ts",
      test: "G16 KD2 back by an hour or on by two changes no decision about a key",
    },
  },
  {
    name: "other content under a known key is a replay",
    guarantee: "G2",
    file: "src/streams/core/keys.ts",
    find: `      if (!window.isSameBody(ordinal, claim.mark)) return { kind: "key_reused" };\n`,
    replace: "",
    caughtBy: {
      file: "src/streams/core/keys.test.ts",
      test: "KD1 with other content is refused, and the first content stays",
    },
  },
  {
    name: "a key that is older than its window is new",
    guarantee: "G2",
    file: "src/streams/core/keys.ts",
    find: "  if (claim.timeMs !== undefined && claim.timeMs <= (scene.keyMs ?? atMs) - windowMs) {",
    replace: "  if (claim.timeMs !== undefined && claim.timeMs < 0) {",
    caughtBy: {
      file: "src/streams/core/keys.test.ts",
      test: "KD3 is refused when it is older than the window and not in it",
    },
  },
  {
    name: "expired keys stay in memory",
    guarantee: "G1",
    file: "src/streams/engine/appends.ts",
    find: "    if (key !== undefined) this.#keySweeper.watch(state);\n",
    replace: "    void [key, this.#keySweeper];\n",
    caughtBy: {
      file: "src/streams/engine/key-sweeper.test.ts",
      test: "gives back the memory of its keys soon after their time",
    },
  },
  {
    name: "a request for a free path finds a stream",
    guarantee: "G6",
    file: "src/streams/core/create.ts",
    find: `  if (command.isNew) return { kind: "present", tail, isClosed };\n`,
    replace: "",
    caughtBy: {
      file: "src/streams/core/create.test.ts",
      test: "never finds a stream there, with every configuration",
    },
  },
];
const patienceFaults = [
  {
    name: "held appends decided out of order",
    guarantee: "G10",
    file: "src/streams/engine/patience.ts",
    find: "    const held = list?.find(({ claim }) => !isAhead(decideProducer(known, claim, undefined)));",
    replace: "    void known;\n    const held = list?.at(-1);",
    caughtBy: {
      file: "src/streams/engine/patience.test.ts",
      test: "are decided in the order of their sequences, all in one batch",
    },
  },
  {
    name: "an append that was given up is stored",
    guarantee: "G2",
    file: "src/streams/engine/patience.ts",
    find: `      patient.onAbort(() => {
        if (this.#drop(held)) onTime(held);
      });`,
    replace: "      patient.onAbort(() => undefined);",
    caughtBy: {
      file: "src/streams/engine/patience.test.ts",
      test: "or, if its client gives up, is not stored",
    },
  },
  {
    name: "held bytes are never given back",
    guarantee: "G1",
    file: "src/streams/engine/patience.ts",
    find: "    this.#bytes -= held.command.data.length;\n",
    replace: "",
    caughtBy: {
      file: "src/streams/engine/patience.test.ts",
      test: "in bytes in all, and what goes makes room",
    },
  },
  {
    name: "a close leaves held appends waiting",
    guarantee: "G5",
    file: "src/streams/engine/appends.ts",
    find: "      if (closes) this.release(state.id);\n      else if",
    replace: "      if (closes) void state;\n      else if",
    caughtBy: {
      file: "src/streams/engine/patience.test.ts",
      test: "when the stream is closed",
    },
  },
];
export const sessionFaults = [...producerFaults, ...keyFaults, ...patienceFaults];
