/** What happens to the nodes of `npm run cluster`: by keys on a terminal, elsewhere by a plan. */

import { pause } from "./demo-run.mjs";

/** Beyond the lease of 5 s: the others take the shards over. */
const BEYOND_LEASE_MS = 7000;
const CALM_MS = 1500;
const CTRL_C = "\u0003";

/** The troubles of a cluster. One node at a time by the plan, any by keys. */
export class Troubles {
  #nodes;
  #wakes = new Set();
  #running = new Set();
  #isOver = false;

  constructor(nodes) {
    this.#nodes = nodes;
  }

  /** Kills, and starts again after a while, or sooner if `start` is called. */
  async kill(node, awayMs) {
    if (node.state !== "running") return;
    await node.kill();
    await this.#wait(node, awayMs);
    await node.start();
  }

  /** Holds the process up, and lets it go on: it still believes that it owns its shards. */
  async stop(node, awayMs = BEYOND_LEASE_MS) {
    if (node.state !== "running") return;
    node.stop();
    await this.#wait(node, awayMs);
    node.goOn();
  }

  /** One trouble after the other, each with another node. */
  async plan() {
    const acts = [
      (node) => this.kill(node, 0),
      (node) => this.kill(node, BEYOND_LEASE_MS),
      (node) => this.stop(node),
    ];
    for (let turn = 0; !this.#isOver; turn += 1) {
      await this.#wait(undefined, CALM_MS);
      const act = acts[turn % acts.length];
      // After three turns each act meets another node.
      const node = this.#nodes[(turn + Math.floor(turn / acts.length)) % this.#nodes.length];
      if (!this.#isOver) await act(node);
    }
  }

  /** Hears keys until the returned function is called. */
  hearKeys({ onEnd, onStop }) {
    const hear = (key) => {
      const node = this.#nodes[Number(key) - 1];
      if (node?.state === "running") this.does(this.kill(node, BEYOND_LEASE_MS));
      else if (node?.state === "killed" || node?.state === "stopped") this.#wake(node);
      else if (key === "s") this.does(this.#stopAny());
      else if (key === "q") onEnd();
      else if (key === CTRL_C) onStop();
    };
    process.stdin.setRawMode(true).setEncoding("utf8").on("data", hear).resume();
    return () => {
      process.stdin.off("data", hear).setRawMode(false).pause();
    };
  }

  /** Remembers work that runs until it has ended; a failure is reported by `end`. */
  does(work) {
    this.#running.add(work);
    work.catch(() => undefined); // `end` throws it.
  }

  /** Ends all troubles: every node is there again. */
  async end() {
    this.#isOver = true;
    for (const { wake } of this.#wakes) wake();
    await Promise.all(this.#running);
  }

  #stopAny() {
    const running = this.#nodes.filter(({ state }) => state === "running");
    const node = running[Math.floor(Math.random() * running.length)];
    return node === undefined ? Promise.resolve() : this.stop(node);
  }

  #wake(node) {
    for (const one of this.#wakes) if (one.node === node) one.wake();
  }

  async #wait(node, ms) {
    if (this.#isOver) return;
    let wake = () => undefined;
    const woken = new Promise((resolve) => {
      wake = resolve;
    });
    const entry = { node, wake };
    this.#wakes.add(entry);
    await Promise.race([pause(ms), woken]);
    this.#wakes.delete(entry);
  }
}
