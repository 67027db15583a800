/** The first few of many names, in order, without sorting all of them. */

const byText = (one: string, other: string): number => (one < other ? -1 : 1);

/** The first `count` names after `after`, in the order of code units. */
export function firstNames<T extends string>(
  names: Iterable<T>,
  after: string,
  count: number,
  isWanted: (name: T) => boolean,
): readonly T[] {
  let kept: T[] = [];
  for (const name of names) {
    if (name <= after || !isWanted(name)) continue;
    kept.push(name);
    // Of a million names only the first few are wanted: the others are dropped on the way.
    if (kept.length >= 4 * count + 1024) kept = kept.sort(byText).slice(0, 2 * count);
  }
  return kept.sort(byText).slice(0, count);
}
