/**
 * One place where a server runs, goes down and comes back: who calls it waits while it is down.
 */

import { existsSync, readdirSync, watch } from "node:fs";
import { type ServerProcess, type StartOptions, startServer } from "./processes.ts";

export class Site {
  readonly #options: StartOptions;
  #current: Promise<ServerProcess> = Promise.reject(new Error("the server was never started"));
  #announce: ((server: Promise<ServerProcess>) => void) | undefined;

  constructor(options: StartOptions) {
    this.#options = options;
    this.#current.catch(() => undefined);
  }

  get dir(): string {
    return this.#options.dir;
  }

  /** Resolves with the address once there is a server; rejects if the last one ended by itself. */
  async url(): Promise<string> {
    return (await this.#current).url;
  }

  async start(): Promise<ServerProcess> {
    const starting = startServer(this.#options);
    this.#set(starting);
    const server = await starting;
    const current = this.#current;
    void server.ended.then((how) => {
      // Still the current one: it was not killed.
      if (this.#current !== current) return;
      this.#set(Promise.reject(new Error(`the server ended with ${how}: ${server.stderr()}`)));
    });
    return server;
  }

  /** Kills the server; callers wait for the next start. */
  async kill(server: ServerProcess): Promise<void> {
    this.#current = new Promise((resolve) => {
      this.#announce = resolve;
    });
    await server.kill();
  }

  /** Starts a server that is killed after `delayMs`, ready or not: a crash during recovery. */
  async startAndKill(delayMs: number): Promise<void> {
    await startServer({
      ...this.#options,
      onSpawn: (child) => {
        setTimeout(() => child.kill("SIGKILL"), delayMs);
      },
    }).then(
      (server) => server.ended,
      () => undefined,
    );
  }

  #set(server: Promise<ServerProcess>): void {
    server.catch(() => undefined);
    this.#announce?.(server);
    this.#announce = undefined;
    this.#current = server;
  }
}

/** Resolves when a file whose name matches comes, goes or is renamed, at the latest after `limitMs`. */
export function fileEvent(dir: string, name: RegExp, limitMs: number): Promise<"seen" | "late"> {
  return new Promise((resolve) => {
    const watcher = watch(dir);
    const settle = (how: "seen" | "late"): void => {
      clearTimeout(timer);
      watcher.close();
      resolve(how);
    };
    const timer = setTimeout(() => {
      settle("late");
    }, limitMs);
    watcher.on("change", (_kind, file) => {
      if (name.test(String(file))) settle("seen");
    });
    watcher.on("error", () => {
      settle("late");
    });
  });
}

/** What a killed server has left half done, by the names of its files. */
export function leftovers(dir: string): { readonly snapshot: boolean; readonly spare: boolean } {
  const names = existsSync(dir) ? readdirSync(dir) : [];
  return {
    snapshot: names.some((name) => /^snapshot-.*\.tmp$/.test(name)),
    spare: names.some((name) => /^spare-.*\.tmp$/.test(name)),
  };
}
