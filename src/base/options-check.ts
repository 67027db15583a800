/** Checks of options, for every wing. */

import { HapaxError } from "./error-codes.ts";

/** Collects what is wrong with options, so that all of it is said at once. */
export class OptionsCheck {
  readonly #problems: string[] = [];

  /** The value or its default; a problem if it is not a number from `min` to `max`. */
  number(name: string, value: number | undefined, fallback: number, min: number, max = Infinity) {
    const chosen = value ?? fallback;
    if (!(chosen >= min && chosen <= max)) {
      this.problem(`${name}=${chosen} is not from ${min} to ${max}`);
    }
    return chosen;
  }

  problem(text: string): void {
    this.#problems.push(text);
  }

  /** Throws if there was a problem. */
  end(code: "invalid_options" | "invalid_request" = "invalid_options"): void {
    if (this.#problems.length > 0) throw new HapaxError(code, this.#problems.join("; "));
  }
}
