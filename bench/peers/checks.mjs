/** A check: a value, what it must be, and whether it is. `undefined`: there is nothing to compare with. */

export function check(what, value, goal, direction = "least") {
  const isMet =
    value === undefined ? undefined : direction === "least" ? value >= goal : value <= goal;
  return { what, value, goal, direction, isMet };
}

/** How many times the rate of one is that of another, by their kinds. */
export function timesOf(measured, ours, other, goal) {
  const [first, second] = [ours, other].map((kind) => measured.find((one) => one.kind === kind));
  const value = first && second ? first.perSecond / second.perSecond : undefined;
  return check(`of ${second?.title ?? other}`, value, goal);
}
