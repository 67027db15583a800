/** What a page asks the server for, once or again and again, with the token that the person has typed in. */

import { type Loaded, useRepeated } from "./repeating.ts";
import { token } from "./server.ts";
import { useShared } from "./store.ts";

/** As `useRepeated`: another token asks anew. */
export function useLoaded<T>(
  load: (signal: AbortSignal) => Promise<T>,
  keys: readonly unknown[],
  everyMs?: number,
): Loaded<T> {
  return useRepeated(load, [useShared(token), ...keys], everyMs);
}
