/** Checks of settings, for every wing. */

import { HapaxError } from "./error-codes.ts";

/** Collects what is wrong with settings, so that all of it is said at once. */
export class SettingsCheck {
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
  end(code: "invalid_settings" | "invalid_request" = "invalid_settings"): void {
    if (this.#problems.length > 0) throw new HapaxError(code, this.#problems.join("; "));
  }
}
