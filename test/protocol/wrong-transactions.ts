/** Servers that break a rule of transactions. PROTOCOL.md §19. */

import { type Broken, type Passed, type Passing, refusal } from "./wrong-server.ts";
import { call } from "./raw-http.ts";

const ROOT = "/_hapax/transactions";
let count = 0;

type Operations = readonly Readonly<Record<string, unknown>>[];

const isCommit = ({ method, path }: Passing): boolean => method === "POST" && path === ROOT;
const isJson = ({ headers }: Passing): boolean => headers["content-type"] === "application/json";

function operationsOf({ body }: Passing): Operations {
  return (JSON.parse(body.toString()) as { readonly operations: Operations }).operations;
}

function setOperations(passing: Passing, operations: Operations): void {
  passing.body = Buffer.from(JSON.stringify({ operations }));
}

/** Each operation alone, as far as it goes. */
async function oneByOne(passing: Passing, upstream: string): Promise<Passed | undefined> {
  if (!isCommit(passing) || !isJson(passing)) return undefined;
  const told: unknown[] = [];
  for (const [operation, each] of operationsOf(passing).entries()) {
    count += 1;
    const headers = { "Content-Type": "application/json", "Idempotency-Key": `alone-${count}` };
    const body = JSON.stringify({ operations: [each] });
    const answer = await call("POST", upstream, ROOT, { headers, body });
    const value = JSON.parse(answer.text) as { code: string; operations: readonly unknown[] };
    if (answer.status !== 200) return refusal(answer.status, value.code, {}, { operation });
    told.push(...value.operations);
    // It takes its time, so that what is half done can be seen.
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  const headers = { "content-type": "application/json" };
  return {
    status: 200,
    headers,
    body: JSON.stringify({ status: "committed", operations: told }),
  };
}

export const brokenTransactions: readonly Broken[] = [
  {
    rule: "a server that forgets the keys of transactions",
    wrong: {
      request(passing) {
        count += 1;
        if (isCommit(passing) && "idempotency-key" in passing.headers) {
          passing.headers["idempotency-key"] = `forgotten-${count}`;
        }
      },
    },
    seenBy: [
      "§19.2 a retry is answered as the original was, and stores nothing",
      "§19.2 thirty copies at once are one transaction, and all have the same answer",
      "§19.2 a retry is answered as the original was when its streams are closed or gone",
      "§19.2 other content under a key is refused and nothing is done",
      "§19.4 the outcome of a key is found with any characters in the key, and an unknown key has none",
    ],
  },
  {
    rule: "a server that does one operation after the other, as far as it goes",
    wrong: { instead: oneByOne },
    seenBy: [
      "§19.2 an append to a stream that is not there refuses all operations by its index",
      "§19.2 an append to a closed stream refuses all operations by its index",
      "§19.2 expectations are about the state before the transaction",
      "§19.2 expectations are looked at before all operations",
      "§19.3 a reader that has read one append of a transaction finds all the others",
      "§12.1 the offsets of one list are of one instant: no transaction is cut",
      "§20.3 in a transaction a lost lease refuses the output too",
    ],
  },
  {
    rule: "a server that ignores expectations",
    wrong: {
      request(passing) {
        if (!isCommit(passing) || !isJson(passing)) return;
        const operations = operationsOf(passing);
        const others = operations.filter((operation) => !("expect" in operation));
        if (others.length > 0) setOperations(passing, others);
      },
    },
    seenBy: [
      "§19.2 the expectation of another tail refuses all operations by its index",
      "§19.2 the expectation that a stream is not there refuses all operations by its index",
      "§19.2 of twenty transactions that expect one tail exactly one is committed",
      "§19.2 a transaction may expect a lease, and moves an offset by one operation only",
    ],
  },
  {
    rule: "a server that does not say which operation it refuses",
    wrong: {
      async answer(passed, passing) {
        if (!isCommit(passing) || passed.status < 400) return passed;
        const { operation: _, ...problem } = JSON.parse(passed.body) as Record<string, unknown>;
        return { ...passed, body: JSON.stringify(problem) };
      },
    },
    seenBy: [
      "§19.1 an operation of no kind is refused by its index, and nothing is done",
      "§19.2 an append of another content type refuses all operations by its index",
      "§19.2 an operation sees what those before it have done",
    ],
  },
  {
    rule: "a server that stores bodies of the framed form as text",
    wrong: {
      request(passing) {
        if (!isCommit(passing) || isJson(passing)) return;
        const head = 4 + (passing.body.length < 4 ? 0 : passing.body.readUInt32BE(0));
        for (let at = head; at < passing.body.length; at += 1) {
          if ((passing.body[at] ?? 0) > 0x7f) passing.body[at] = 0x3f;
        }
      },
    },
    seenBy: ["§19.1 bodies of the framed form are stored byte for byte, each in its stream"],
  },
  {
    rule: "a server that has no outcomes",
    wrong: {
      async instead({ method, path }) {
        const isLook = method === "GET" && path.startsWith(`${ROOT}/`);
        return isLook ? refusal(404, "transaction_not_found") : undefined;
      },
    },
    seenBy: [
      "§19.4 the outcome of a key is found with any characters in the key, and an unknown key has none",
      "§19.4 the outcome of a producer is found by its sequence and epoch",
      "§19.4 the outcome of a session is found by its sequence and nonce",
    ],
  },
  {
    rule: "a server that tells the tail of now to a retry",
    wrong: {
      async answer(passed, passing) {
        if (!isCommit(passing) || passed.headers["idempotency-replayed"] === undefined) {
          return passed;
        }
        return { ...passed, body: passed.body.replaceAll(/_(\d{15})\d/g, "_$19") };
      },
    },
    seenBy: [
      "§19.2 a retry is answered as the original was, and stores nothing",
      "§19.2 a producer's retry is a replay, with the sequence of the retry",
    ],
  },
  {
    rule: "a server that takes a transaction without an identity",
    wrong: {
      request(passing) {
        const { headers } = passing;
        if (!isCommit(passing)) return;
        count += 1;
        if (!("producer-id" in headers)) headers["idempotency-key"] ??= `given-${count}`;
      },
    },
    seenBy: ["§19 a transaction without an identity is refused"],
  },
];
