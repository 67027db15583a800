/** PORT. Says whether the page is visible; a reader of a hidden page may rest. */

/**
 * Tells whether a page is hidden, and when that changes.
 *
 * ```ts
 * import { type Visibility } from "hapax/client";
 *
 * // An app of another kind: whether its window is minimised.
 * const listeners = new Set<() => void>();
 * let isMinimised = false;
 * const visibility: Visibility = {
 *   isHidden: () => isMinimised,
 *   onChange(run) {
 *     listeners.add(run);
 *     return () => void listeners.delete(run);
 *   },
 * };
 * const stop = visibility.onChange(() => console.assert(visibility.isHidden()));
 * isMinimised = true;
 * for (const run of listeners) run();
 * stop();
 * console.assert(listeners.size === 0);
 * ```
 */
export interface Visibility {
  isHidden(): boolean;
  /** Calls `run` at every change until the returned function is called. */
  onChange(run: () => void): () => void;
}

/** The two members of a browser's `document` that are used. */
export interface VisibilityDocument {
  readonly visibilityState: string;
  addEventListener(type: "visibilitychange", run: () => void): void;
  removeEventListener(type: "visibilitychange", run: () => void): void;
}

/**
 * Returns the visibility of a browser's tab. `stream.follow({ visibility: documentVisibility(document) })` closes
 * its connection while the tab is hidden, and goes on from its place when the tab is visible again.
 *
 * ```ts
 * import { documentVisibility } from "hapax/client";
 *
 * const tab = Object.assign(new EventTarget(), { visibilityState: "hidden" });
 * console.assert(documentVisibility(tab).isHidden());
 * ```
 */
export function documentVisibility(document: VisibilityDocument): Visibility {
  return {
    isHidden: () => document.visibilityState === "hidden",
    onChange(run) {
      document.addEventListener("visibilitychange", run);
      return () => {
        document.removeEventListener("visibilitychange", run);
      };
    },
  };
}
