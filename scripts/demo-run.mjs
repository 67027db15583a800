/** What runs of the demos share: how they end, how payments are given, and how streams are read back. */

const TICK_MS = 10;

class Stopped extends Error {}

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** One run: everything that has to end when it does, and what has been counted. */
class Run {
  counts = { given: 0, retries: 0, unanswered: 0, duplicatesStopped: 0 };
  startMs = performance.now();
  #closers = [];
  #stop = () => undefined;
  stopped = new Promise((_, reject) => {
    this.#stop = reject;
  });

  constructor() {
    this.stopped.catch(() => undefined);
    // Never taken off: npm and the terminal both send it, and the second must not cut the tidying short.
    process.on("SIGINT", this.#onSignal);
    process.on("SIGTERM", this.#onSignal);
    // The terminal was closed. What was started would stay: a server reads its files again then.
    process.on("SIGHUP", this.#onSignal);
  }

  #onSignal = () => this.stop();

  /** As Ctrl-C does. */
  stop() {
    this.#stop(new Stopped());
  }

  /** Ends with the run, the last one first. */
  owns(close) {
    this.#closers.unshift(close);
  }

  /** Waits for work, unless the run is stopped before. */
  async until(work) {
    return Promise.race([work, this.stopped]);
  }

  async close() {
    for (const close of this.#closers.splice(0)) await close();
  }
}

/**
 * Gives every payment at its time, `rates` of them in a second by each writer. A late timer gives more at once: their number is
 * always the same, unless `isOver` ends the run before.
 */
export async function givePayments(run, rates, give, seconds, isOver = () => false) {
  const given = { producer: 0, append: 0 };
  const beginMs = performance.now();
  for (;;) {
    const elapsedMs = Math.min(performance.now() - beginMs, seconds * 1000);
    for (const [writer, rate] of Object.entries(rates)) {
      const due = Math.floor((elapsedMs / 1000) * rate);
      for (; given[writer] < due; given[writer] += 1) {
        const number = given[writer];
        give(writer, { writer, number, cents: 100 + ((number * 37) % 9900) });
        run.counts.given += 1;
      }
    }
    if (isOver() || elapsedMs >= seconds * 1000) return given;
    await run.until(pause(TICK_MS));
  }
}

/** Reads by hand, so that no contender is its own witness. */
export async function readAll(url) {
  const records = [];
  for (let offset = "-1"; ;) {
    const answer = await fetch(`${url}?offset=${encodeURIComponent(offset)}`);
    if (!answer.ok) throw new Error(`reading back failed with ${answer.status}`);
    records.push(...(await answer.json()));
    offset = answer.headers.get("stream-next-offset") ?? "";
    if (answer.headers.get("stream-up-to-date") === "true") return records;
  }
}

/** Stores one payment a second time. */
export async function plantDuplicate(url) {
  const body = JSON.stringify({ writer: "append", number: 0, cents: 100 });
  const headers = { "Content-Type": "application/json" };
  const answer = await fetch(url, { method: "POST", headers, body });
  if (!answer.ok) throw new Error(`planting failed with ${answer.status}`);
}

/** Runs to the end, and ends the process: everything that the run owns ends before. */
export async function runToEnd(work) {
  const run = new Run();
  try {
    await work(run);
  } catch (error) {
    if (!(error instanceof Stopped)) throw error;
    process.exitCode = 130;
  } finally {
    await run.close();
  }
  if (process.exitCode === 130) console.log("stopped; nothing was kept");
  // Writers may still be repeating requests, and no caller waits for them.
  process.exit();
}
