/**
 * A hook for tests. The functions of the toolkit call it at named moments between two steps where a crash
 * matters, and wait for it. Without a hook nothing happens there. `hapax/testing` exports `setFailpoint`, which
 * sets it.
 */

type Failpoint = (name: string) => void | Promise<void>;

let current: Failpoint | undefined;

/** Sets a function that every failpoint calls and waits for. Undefined removes it. */
export function setFailpoint(hook: Failpoint | undefined): void {
  current = hook;
}

export function failpoint(name: string): void | Promise<void> {
  return current?.(name);
}

/** Returns whether a test has set a hook. For paths where an `await` would let other code run in between. */
export function hasFailpoint(): boolean {
  return current !== undefined;
}
