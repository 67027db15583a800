/** Faults of the client and of the fault proxy that chaos by proxy brings to light. */
const CASES = "test/client/chaos-cases.test.ts";
const CHAOS = "test/client/chaos.test.ts";
const HARMS = "src/testing/fault-proxy-harms.test.ts";
const ATTEMPT = "src/client/attempt.ts";
const SENDER = "src/client/sender.ts";
const PROXY = "src/testing/fault-proxy.ts";
export const chaosFaults = [
  {
    name: "chaos: a retry of a batch is numbered anew",
    guarantee: "G19",
    file: ATTEMPT,
    find: "        heard?.discard();",
    replace:
      "        heard?.discard();\n" +
      '        const number = Number(call.headers?.["Producer-Seq"] ?? 0) + 1;\n' +
      '        call = { ...call, headers: { ...call.headers, "Producer-Seq": String(number) } };',
    caughtBy: {
      file: CASES,
      test: "a request that was cut in its body was not done, and is sent again whole",
    },
  },
  {
    name: "chaos: the session is changed with batches in flight",
    guarantee: "G19",
    file: SENDER,
    find: "    const sequence = this.#nextSequence;\n",
    replace:
      "    if (this.#flight.some(({ wasLost }) => wasLost)) {\n" +
      '      const session = { "Producer-Session": `again-${String(this.#nextSequence)}` };\n' +
      "      identity = { ...identity, headers: { ...identity.headers, ...session } };\n" +
      "      this.#nextSequence = 0;\n" +
      "    }\n" +
      "    const sequence = this.#nextSequence;\n",
    caughtBy: {
      file: CASES,
      test: "over sockets fifty in flight with random lost answers keep their order",
    },
  },
  {
    name: "chaos: what comes back after a 413 is sent behind the rest",
    guarantee: "G19",
    file: "src/client/batching.ts",
    find: "    this.#entries = [...entries, ...this.#entries.slice(this.#start)];",
    replace: "    this.#entries = [...this.#entries.slice(this.#start), ...entries];",
    caughtBy: {
      file: CASES,
      test: "over sockets a 413 whose answer is whole splits the batch, and the producer goes on",
    },
  },
  {
    name: "chaos: a 5xx is taken for not done",
    guarantee: "G19",
    file: ATTEMPT,
    find: "!heard || heard.status >= 500 || heard.status === 408;",
    replace: "!heard || heard.status === 408;",
    caughtBy: {
      file: CASES,
      test: "a producer that hears nothing but 502 gives up, and its records are unknown",
    },
  },
  {
    name: "chaos: the client never gives up on a half-open connection",
    guarantee: "G19",
    file: "src/client/request.ts",
    find: "    if (timeoutMs === Infinity) return;",
    replace: "    if (timeoutMs <= Infinity) return;",
    caughtBy: {
      file: CASES,
      test: "a half-open connection (silenceAnswers) ends by the client's own time limit, and nothing is lost",
    },
  },
  {
    name: "chaos: what was sent and not answered is reported as not stored",
    guarantee: "G19",
    file: SENDER,
    find: `if (wasLost && !isCertain) outcome = "unknown";`,
    replace: `if (wasLost && isCertain) outcome = "unknown";`,
    caughtBy: {
      file: CASES,
      test: "peers that stay half-open (silenceAnswers) end the producer, and the outcome of what was sent is unknown",
    },
  },
  {
    name: "chaos: flush resolves one record early",
    guarantee: "G19",
    file: "src/client/producer.ts",
    find: "first.count > this.#ended)",
    replace: "first.count > this.#ended + 1)",
    caughtBy: {
      file: CHAOS,
      test: "G19 30 seeds of 200 appends through a proxy with all faults: each once, in order, and every flush is truthful",
    },
  },
  {
    name: "chaos: two handles make two keys of one",
    guarantee: "G19",
    file: "src/client/keyed.ts",
    find: `"Idempotency-Key": quoted(key),`,
    replace: `"Idempotency-Key": quoted(\`\${key} \${peer.caller.options.random.id()}\`),`,
    caughtBy: {
      file: CHAOS,
      test: "4 seeds of 200 keyed appends through the same proxy, some called twice: each key is stored once",
    },
  },
  {
    name: "chaos: the proxy keeps the copy of a request to itself",
    guarantee: "G19",
    file: PROXY,
    find: "    if (!this.#isClosed) await this.#send(target, passing, hearsCopy);",
    replace: "    if (!this.#isClosed && hearsCopy) await this.#send(target, passing, hearsCopy);",
    caughtBy: {
      file: HARMS,
      test: "a duplicated request arrives twice, and its client hears one answer",
    },
  },
  {
    name: "chaos: the proxy sends a request on that it cuts",
    guarantee: "G19",
    file: PROXY,
    find: "        await sendPart(target, request, body, fate.passedShare ?? 0.5);",
    replace: "        await sendPart(target, request, body, 1);",
    caughtBy: {
      file: HARMS,
      test: "a request that is cut reaches the server in part, and its client loses the connection",
    },
  },
];
