/**
 * The verdict of the demo: what was sent against what the stream holds. Pure, so that a test can plant each
 * fault.
 *
 *   DM1  the verdict is `isExact` if and only if every payment that was sent is stored once, in the order in
 *        which its writer sent it, nothing else is stored, and every writer was told that all is stored.
 */

/** How many faults of a kind are named; of the others only the count. */
const NAMED_MAX = 3;

/**
 * Compares. `sent` has for each writer how many payments it gave (numbered from 0) and what it was told of
 * them: `confirmed` is true if it was told that all are stored. `stored` are the records of the stream.
 */
export function judge(sent, stored) {
  const writers = new Map(sent.map(({ writer, count }) => [writer, emptyTally(count)]));
  const foreign = [];
  for (const record of stored) {
    const tally = writers.get(record?.writer);
    const { number } = record ?? {};
    const isOurs = tally !== undefined && Number.isInteger(number) && number >= 0;
    if (!isOurs || number >= tally.seen.length) foreign.push(JSON.stringify(record));
    else take(tally, record.writer, number);
  }
  const all = [...writers.values()];
  const count = sent.reduce((sum, writer) => sum + writer.count, 0);
  const faults = {
    lost: sent.flatMap(({ writer }) => missingOf(writers.get(writer), writer)),
    duplicated: all.flatMap(({ duplicated }) => duplicated),
    outOfOrder: all.flatMap(({ outOfOrder }) => outOfOrder),
    foreign,
    unconfirmed: sent.filter(({ confirmed }) => !confirmed).map(({ writer }) => writer),
  };
  const isExact = Object.values(faults).every((found) => found.length === 0);
  return { sent: count, stored: stored.length, ...faults, isExact };
}

const emptyTally = (count) => ({
  seen: Array.from({ length: count }, () => false),
  last: -1,
  duplicated: [],
  outOfOrder: [],
});

function take(tally, writer, number) {
  if (tally.seen[number]) {
    tally.duplicated.push(`${writer} ${number}`);
    return;
  }
  tally.seen[number] = true;
  if (number < tally.last) tally.outOfOrder.push(`${writer} ${number}`);
  tally.last = Math.max(tally.last, number);
}

function missingOf(tally, writer) {
  return tally.seen.flatMap((isSeen, number) => (isSeen ? [] : [`${writer} ${number}`]));
}

/** The verdict for people. */
export function verdictLines(verdict) {
  const { sent, stored, lost, duplicated, outOfOrder, foreign, unconfirmed, isExact } = verdict;
  const lines = [`sent ${sent}, stored ${stored}`];
  const tell = (found, what) => {
    if (found.length === 0) return;
    const named = found.slice(0, NAMED_MAX).join(", ");
    const more = found.length > NAMED_MAX ? ", …" : "";
    lines.push(`  ${String(found.length).padStart(6)} ${what}: ${named}${more}`);
  };
  tell(lost, "not stored");
  tell(duplicated, "stored more than once");
  tell(outOfOrder, "out of order");
  tell(foreign, "never sent");
  if (unconfirmed.length > 0) lines.push(`  not confirmed to: ${unconfirmed.join(", ")}`);
  lines.push(isExact ? "EXACT: each payment once, in order" : "NOT EXACT");
  return lines;
}
