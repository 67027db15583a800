/** A store of objects in memory, for tests that open a window thousands of times. It can lose requests and answers, and list late. */

import type { WindowObjects } from "../../src/toolkit/window.ts";

export class MemoryObjects implements WindowObjects {
  readonly all = new Map<string, Uint8Array>();
  readonly calls: string[] = [];
  isIgnoringConditions = false;
  hiddenMax = 0;
  /** Called before and after each write; throws to lose the request or the answer. */
  before: (name: string) => void = () => undefined;
  after: (name: string) => void = () => undefined;

  /** Writes that begin from now on wait until the returned function is called. */
  hold(): () => void {
    let release: () => void = () => undefined;
    this.#held = new Promise((resolve) => (release = resolve));
    return () => {
      this.#held = undefined;
      release();
    };
  }

  #held: Promise<void> | undefined;

  async create(name: string, bytes: Uint8Array): Promise<"stored" | "occupied"> {
    this.calls.push(`create ${name}`);
    await this.#held;
    this.before(name);
    const isTaken = this.all.has(name) && !this.isIgnoringConditions;
    if (!isTaken) this.all.set(name, bytes.slice());
    this.after(name);
    return isTaken ? "occupied" : "stored";
  }

  async get(name: string): Promise<Uint8Array | undefined> {
    this.calls.push(`get ${name}`);
    await Promise.resolve();
    return this.all.get(name)?.slice();
  }

  async list(prefix: string): Promise<readonly string[]> {
    this.calls.push(`list ${prefix}`);
    await Promise.resolve();
    const names = [...this.all.keys()];
    const seen = names.slice(0, Math.max(0, names.length - this.hiddenMax));
    return seen.filter((name) => name.startsWith(prefix));
  }

  async remove(name: string): Promise<void> {
    this.calls.push(`remove ${name}`);
    await Promise.resolve();
    this.all.delete(name);
  }
}
