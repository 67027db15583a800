/**
 * Who writes the payments of the demo. A contender has two writers, each as its documentation shows it:
 *
 *   producer   many payments, batched by the client, confirmed by one `flush()` at the end
 *   append     single payments, each confirmed by its own call
 *
 * All contenders offer `give(writer, payment)`, which does not wait, `finish()`, which resolves when every
 * call has ended, and `told()`: what each writer has heard by now, and if it was told that all is stored.
 */

import { createRequire } from "node:module";

/** The longest pause between two attempts, for all contenders: no server lives for longer than a second. */
export const PAUSE_MS_MAX = 250;

const version = (name) => createRequire(import.meta.url)(`${name}/package.json`).version;

export const CONTENDERS = {
  hapax: {
    server: "hapax",
    describe: () => "hapax serve, written to by hapax/client",
    options: () => "a producer with flush(), and append() as it is",
    open: openHapax,
  },
  reference: {
    server: "reference",
    describe: () =>
      `@durable-streams/server ${version("@durable-streams/server")} with files, ` +
      `written to by @durable-streams/client ${version("@durable-streams/client")}`,
    options: () =>
      "an IdempotentProducer with autoClaim and onError as in its README, and append() as it is",
    open: (url, fetcher) => openReference(url, fetcher, { autoClaim: true }),
  },
  "reference-retrying": {
    server: "reference",
    describe: () => CONTENDERS.reference.describe(),
    options: () =>
      "an IdempotentProducer over the client's createFetchWithBackoff, with maxInFlight 1, " +
      "which its README does not ask for, and append() as it is",
    open: async (url, fetcher) => {
      const { BackoffDefaults, createFetchWithBackoff } = await import("@durable-streams/client");
      const backoff = { ...BackoffDefaults, maxDelay: PAUSE_MS_MAX };
      const options = { maxInFlight: 1, fetch: createFetchWithBackoff(fetcher, backoff) };
      return openReference(url, fetcher, options);
    },
  },
};

/** Collects the answers to a writer. */
class Told {
  errors = [];
  confirmed = 0;
  hear = (error) => {
    this.errors.push(error instanceof Error ? error.message : String(error));
  };
  confirm = () => {
    this.confirmed += 1;
  };
}

/** `onAck` hears the number of payments that were acknowledged, whenever some are. */
async function openHapax(url, fetcher, onAck = () => undefined) {
  const { connect } = await import("hapax/client");
  const stream = connect(url, { fetch: fetcher, retry: { pauseMsMax: PAUSE_MS_MAX } });
  await stream.create({ contentType: "application/json" });
  const told = { producer: new Told(), append: new Told() };
  const onBatchAck = ({ records }) => onAck("producer", records);
  const producer = stream.producer({ id: "payments-1", onBatchAck });
  const calls = [];
  const heard = () => {
    told.append.confirm();
    onAck("append", 1);
  };
  return {
    give(writer, payment) {
      if (writer === "producer") giveTo(producer, payment, told.producer);
      else calls.push(stream.append(payment).then(heard, told.append.hear));
    },
    async finish() {
      const flushed = producer.close().then(told.producer.confirm, told.producer.hear);
      await Promise.all([flushed, ...calls]);
    },
    told: () => outcome(told, calls.length),
  };
}

async function openReference(url, fetcher, producerOptions) {
  const { BackoffDefaults, DurableStream, IdempotentProducer } =
    await import("@durable-streams/client");
  const stream = await DurableStream.create({
    url,
    contentType: "application/json",
    fetch: fetcher,
    backoffOptions: { ...BackoffDefaults, maxDelay: PAUSE_MS_MAX },
  });
  const told = { producer: new Told(), append: new Told() };
  const producer = new IdempotentProducer(stream, "payments-1", {
    fetch: fetcher,
    ...producerOptions,
    onError: told.producer.hear,
  });
  const calls = [];
  return {
    give(writer, payment) {
      const text = JSON.stringify(payment);
      if (writer === "producer") giveTo(producer, text, told.producer);
      else calls.push(stream.append(text).then(told.append.confirm, told.append.hear));
    },
    async finish() {
      const flushed = producer.flush().then(told.producer.confirm, told.producer.hear);
      await Promise.all([flushed, ...calls]);
    },
    told: () => outcome(told, calls.length),
  };
}

/** A producer that is over says so at once. The payments go on all the same, and so does the count. */
function giveTo(producer, payment, told) {
  try {
    producer.append(payment);
  } catch (error) {
    told.hear(error);
  }
}

/** `confirmed`: `flush()` has resolved, or every call has. Errors beside it do not take that back. */
function outcome({ producer, append }, calls) {
  return {
    producer: { confirmed: producer.confirmed === 1, errors: producer.errors },
    append: { confirmed: append.confirmed === calls, errors: append.errors },
  };
}

/** A `fetch` that counts: what all contenders send goes through it. */
export function countingFetch(counts, send = fetch) {
  const seen = new Set();
  return async (url, init = {}) => {
    // A POST without a body asks what the server can do.
    if (init.method !== "POST" || !init.body) return send(url, init);
    const headers = new Headers(init.headers);
    const sequence = headers.get("producer-seq");
    const epoch = headers.get("producer-session") ?? headers.get("producer-epoch");
    const body = typeof init.body === "string" ? init.body : Buffer.from(init.body).toString();
    // The numbers of payments are unique: the same body again is the same append again.
    const identity = `${headers.get("producer-id")} ${epoch} ${sequence} ${body}`;
    if (seen.has(identity)) counts.retries += 1;
    seen.add(identity);
    let answer;
    try {
      answer = await send(url, init);
    } catch (error) {
      counts.unanswered += 1;
      throw error;
    }
    if (sequence !== null && answer.status === 204) counts.duplicatesStopped += 1;
    return answer;
  };
}
