/** What every primitive uses: a clock, randomness and metrics. */

import { type Clock, systemClock } from "../../base/clock.ts";
import { type Random, systemRandom } from "../../base/random.ts";
import { type Meter, noMeter } from "../meters/meter.ts";

/** Clock, randomness and metrics of a primitive. All have defaults; tests replace the clock and the randomness. */
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
