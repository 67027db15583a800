/**
 * Named moments between two steps of a primitive, where a crash matters. Nothing happens there, unless a test has asked
 * to be called: `hapax/testing` exports `setFailpoint`.
 */

type Failpoint = (name: string) => void | Promise<void>;

let current: Failpoint | undefined;

/** Calls `hook` at every failpoint from now on, and waits for it; undefined: no more. */
export function setFailpoint(hook: Failpoint | undefined): void {
  current = hook;
}

export function failpoint(name: string): void | Promise<void> {
  return current?.(name);
}
