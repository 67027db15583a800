/**
 * Counts groups or subscriptions by their namespaces, so that one namespace cannot use up what there is for all. PROTOCOL.md §21.3.
 *
 *   - what identities without a namespace have is counted together, as if it were a namespace;
 *   - a namespace that has nothing is not remembered.
 */

import { assert } from "../../base/assert.ts";
import { HapaxError } from "../../base/errors.ts";
import { splitScoped } from "../core/scoped-name.ts";

export interface CountLimits {
  /** What is counted, in the plural. */
  readonly what: string;
  /** Of identities without a namespace. */
  readonly withoutNamespace: number;
  readonly perNamespace: number;
  readonly inAll: number;
}

export class NamespaceCounts {
  readonly #limits: CountLimits;
  readonly #counts = new Map<string | undefined, number>();
  #all = 0;

  /** `kept`: the names of those that are there, as the server keeps them. */
  constructor(limits: CountLimits, kept: Iterable<string>) {
    this.#limits = limits;
    for (const name of kept) this.add(name);
  }

  /** Throws if there is no room for one more in the namespace of this name. */
  admit(kept: string): void {
    const { what, withoutNamespace, perNamespace, inAll } = this.#limits;
    const { namespace } = splitScoped(kept);
    const max = namespace === undefined ? withoutNamespace : perNamespace;
    if ((this.#counts.get(namespace) ?? 0) >= max) {
      throw new HapaxError("too_many", `there are ${max} ${what} already`);
    }
    if (this.#all >= inAll) {
      throw new HapaxError("too_many", `the server has no room for more ${what}`);
    }
  }

  add(kept: string): void {
    this.#change(kept, 1);
  }

  remove(kept: string): void {
    this.#change(kept, -1);
  }

  #change(kept: string, by: number): void {
    const { namespace } = splitScoped(kept);
    const count = (this.#counts.get(namespace) ?? 0) + by;
    assert(count >= 0, "a namespace has less than nothing");
    if (count === 0) this.#counts.delete(namespace);
    else this.#counts.set(namespace, count);
    this.#all += by;
  }
}
