/** Nodes of a cluster as processes of their own, and producers that may send to any of them. */

import { type ChildProcess, spawn } from "node:child_process";
import { Agent } from "node:http";
import { fileURLToPath } from "node:url";
import { call, type HttpAnswer } from "../protocol/raw-http.ts";

const NODE = fileURLToPath(new URL("node.mjs", import.meta.url));

const running = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of running) child.kill("SIGKILL");
});

export interface NodeProcess {
  readonly name: string;
  readonly url: string;
  readonly child: ChildProcess;
  readonly ended: Promise<number | NodeJS.Signals>;
  /** No request is sent to it. */
  isAway: boolean;
  stderr(): string;
}

export function startNode(options: {
  readonly database: string;
  readonly node: string;
  readonly databaseOptions: object;
  readonly leaseMs: number;
  readonly peerKey: string;
  readonly warmCopies?: boolean;
  /** How far its wall clock is wrong. */
  readonly clockOffMs?: number;
  /** Where it listens for its peers, and where they find it. */
  readonly peers?: string;
  readonly advertisePeers?: string;
  /** The address that it listens on. */
  readonly host?: string;
  readonly insecurePublic?: boolean;
  /** What the command begins with, as that of another network. */
  readonly prefix?: readonly string[];
}): Promise<NodeProcess> {
  const { prefix = [], ...given } = options;
  const words = [...prefix, process.execPath, NODE, JSON.stringify(given)];
  const [program = "", ...rest] = words;
  const child = spawn(program, rest, {
    stdio: ["ignore", "pipe", "pipe", "ipc"],
    env: { ...process.env, NODE_ENV: "production" },
  });
  running.add(child);
  let [out, errors] = ["", ""];
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    errors += text;
  });
  const ended = new Promise<number | NodeJS.Signals>((resolve) => {
    child.once("close", (code, signal) => {
      running.delete(child);
      resolve(signal ?? code ?? -1);
    });
  });
  return new Promise((resolve, reject) => {
    child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      out += text;
      const url = /listening on (\S+)/.exec(out)?.[1];
      if (url === undefined) return;
      resolve({ name: options.node, url, child, ended, isAway: false, stderr: () => errors });
    });
    void ended.then((how) => {
      reject(new Error(`the node ended before it was ready (${how}): ${errors}`));
    });
  });
}

const ANSWER_MS = 8000;

function late(): Promise<never> {
  return new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`no answer in ${ANSWER_MS} ms`)), ANSWER_MS).unref();
  });
}

/** Sends numbered appends to random nodes until it is stopped, each again until it is answered. */
export class ClusterProducer {
  readonly id: string;
  readonly path: string;
  readonly offsets = new Map<number, string>();
  /** Answers that no client should get, and requests that failed. */
  readonly failures: string[] = [];
  acked = 0;
  duplicates = 0;
  /** The longest time from the first attempt to the answer, since a test has set it to 0. */
  longestMs = 0;
  /** The node that its request is at. */
  sentTo: NodeProcess | undefined;
  readonly #nodes: () => readonly NodeProcess[];
  readonly #agent = new Agent({ keepAlive: true });
  #isStopped = false;

  constructor(nodes: () => readonly NodeProcess[], id: string, path: string) {
    this.#nodes = nodes;
    this.id = id;
    this.path = path;
  }

  expected(number: number): {
    readonly producer: string;
    readonly number: number;
    readonly fill: string;
  } {
    return { producer: this.id, number, fill: `${this.id}:${number};`.repeat(8) };
  }

  stop(): void {
    this.#isStopped = true;
  }

  async run(): Promise<void> {
    for (let number = 0; !this.#isStopped; number += 1) await this.#append(number);
    this.#agent.destroy();
  }

  async #append(number: number): Promise<void> {
    const body = JSON.stringify(this.expected(number));
    const headers = {
      "content-type": "application/json",
      "producer-id": this.id,
      "producer-epoch": "0",
      "producer-seq": String(number),
    };
    const begunMs = performance.now();
    for (;;) {
      const there = this.#nodes().filter(({ isAway }) => !isAway);
      const node = there[Math.floor(Math.random() * there.length)];
      if (node === undefined) throw new Error("no node is there");
      this.sentTo = node;
      const options = { headers, body, agent: this.#agent };
      // A node that is stopped answers nothing: the same again at another one is safe.
      const answer = await Promise.race([call("POST", node.url, this.path, options), late()]).catch(
        (error: unknown) => error,
      );
      if (answer instanceof Error || answer === undefined) {
        this.failures.push(`append ${number} to ${node.name}: ${String(answer)}`);
      } else if (this.#take(number, answer as HttpAnswer, node)) break;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    this.longestMs = Math.max(this.longestMs, performance.now() - begunMs);
  }

  #take(number: number, answer: HttpAnswer, node: NodeProcess): boolean {
    if (answer.status === 200 || answer.status === 204) {
      this.acked += 1;
      if (answer.status === 200)
        this.offsets.set(number, String(answer.headers["stream-next-offset"]));
      else this.duplicates += 1;
      return true;
    }
    this.failures.push(`append ${number} to ${node.name}: ${answer.status} ${answer.text}`);
    return false;
  }
}
