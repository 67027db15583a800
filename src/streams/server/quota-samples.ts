/**
 * What identities and namespaces use of their quotas, as samples of metrics.
 *
 *   - the number of samples has a bound: identities nearest to a limit and namespaces with the most bytes have their own, and those of
 *     the others are summed, without a name;
 *   - with a namespace there is nothing of any other.
 */

import type { Usage } from "../access/usage.ts";
import type { Holding } from "../engine/holdings.ts";
import type { QuotaBook, QuotaName } from "./quotas.ts";

type Sample = readonly [Readonly<Record<string, string>>, number];

/** Identities, and namespaces, that have samples of their own. */
const NAMED_MAX = 100;

export function quotaSamples(
  book: QuotaBook,
  namespace: string | undefined,
): Readonly<Record<"used" | "limits" | "refusals", readonly Sample[]>> {
  const nowMs = book.clock.steadyMs();
  const isMeant = (path: string | undefined): boolean =>
    namespace === undefined || path === namespace;
  const holdings = Array.from(book.holdings.all)
    .filter((holding) => holding.isCounted && isMeant(holding.path))
    .toSorted((one, other) => other.bytes - one.bytes);
  const byPath = new Map(holdings.map((holding) => [holding.path, stored(holding)]));
  const usages = Array.from(book.usages.all)
    .filter((usage) => isMeant(usage.namespace))
    .map((usage) => {
      const [used, limits] = [usage.at(nowMs), limitsOf(usage)];
      const share = closeness({ ...used, ...byPath.get(usage.namespace) }, limits);
      return { usage, used, limits, share };
    })
    .toSorted((one, other) => other.share - one.share);
  const refusals = namespace === undefined ? book.refusals : book.refusalsOf(namespace);
  const named = usages.slice(0, NAMED_MAX);
  return {
    used: [
      ...named.flatMap(({ usage, used }) => samples(labelsOf(usage), used)),
      ...samples({}, sum(usages.slice(NAMED_MAX).map(({ used }) => used))),
      ...holdings
        .slice(0, NAMED_MAX)
        .flatMap((holding) => samples(pathLabel(holding.path), stored(holding))),
      ...samples({}, sum(holdings.slice(NAMED_MAX).map(stored))),
    ],
    limits: named.flatMap(({ usage, limits }) => samples(labelsOf(usage), limits)),
    refusals: samples({}, refusals),
  };
}

type Amounts = Readonly<Partial<Record<QuotaName, number>>>;

function labelsOf({ namespace, name }: Usage): Readonly<Record<string, string>> {
  return { ...pathLabel(namespace), identity: name };
}

function pathLabel(namespace: string | undefined): Readonly<Record<string, string>> {
  return namespace === undefined ? {} : { namespace };
}

/** Only limits that there are. */
function limitsOf({ limits }: Usage): Amounts {
  const all = {
    requests: limits.requestsMax,
    live_readers: limits.liveReadersMax,
    appends_per_second: limits.appendsPerSecond,
    bytes_per_second: limits.bytesPerSecond,
    streams: limits.streamsMax,
    stored_bytes: limits.storedBytesMax,
  };
  return Object.fromEntries(Object.entries(all).filter(([, limit]) => limit !== Infinity));
}

/** The largest share of a limit that is used. */
function closeness(used: Amounts, limits: Amounts): number {
  const shares = Object.entries(used).map(([quota, amount]) => {
    const limit = limits[quota as QuotaName]; // The keys are those of a record of quotas.
    return limit === undefined || limit === 0 ? 0 : amount / limit;
  });
  return Math.max(0, ...shares);
}

function stored({ streams, bytes }: Holding): Amounts {
  return { streams, stored_bytes: bytes };
}

function samples(labels: Readonly<Record<string, string>>, amounts: Amounts): readonly Sample[] {
  return Object.entries(amounts).map(([quota, amount]) => [{ ...labels, quota }, amount] as const);
}

/** Nothing if there is nothing to sum. */
function sum(all: readonly Amounts[]): Amounts {
  const total: Partial<Record<QuotaName, number>> = {};
  for (const amounts of all) {
    for (const [quota, amount] of Object.entries(amounts)) {
      const name = quota as QuotaName; // As above.
      total[name] = (total[name] ?? 0) + amount;
    }
  }
  return total;
}
