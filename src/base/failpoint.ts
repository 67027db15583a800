/**
 * Named moments between two steps of a primitive, where a crash matters. A failpoint does nothing unless a test sets
 * a hook: `hapax/testing` exports `setFailpoint`.
 */

type Failpoint = (name: string) => void | Promise<void>;

let current: Failpoint | undefined;

/** Sets the hook: every failpoint calls it and waits for it. Undefined removes it. */
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
