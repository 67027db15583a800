/** What every primitive uses: a clock, randomness and metrics. */

import { type Clock, systemClock } from "../../base/clock.ts";
import { type Random, systemRandom } from "../../base/random.ts";
import { type Meter, noMeter } from "../meters/meter.ts";

/** What every function of the toolkit takes: a clock, randomness, a meter. All have defaults; tests replace clock and randomness. */
export interface Tools {
  readonly clock?: Clock;
  readonly random?: Random;
  readonly meter?: Meter;
}

export interface ResolvedTools {
  readonly clock: Clock;
  readonly random: Random;
  readonly meter: Meter;
}

export function resolveTools({ clock, random, meter }: Tools): ResolvedTools {
  return { clock: clock ?? systemClock, random: random ?? systemRandom, meter: meter ?? noMeter };
}
