/** The tools that every primitive takes: a clock, randomness and a meter. */

import { type Clock, systemClock } from "../../base/clock.ts";
import { type Random, systemRandom } from "../../base/random.ts";
import { type Meter, noMeter } from "../meters/meter.ts";

/**
 * Options that every function of the toolkit takes: a clock, a source of randomness, a meter. All have defaults. Tests
 * replace clock and randomness.
 */
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
