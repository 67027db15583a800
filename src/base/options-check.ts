/**
 * Checks of options, for every wing. Each wing passes its error class: the client's is small and has no help texts, the one
 * of errors.ts has them. This file imports neither.
 */

/** The code of the error that `end` throws. */
export type CheckCode = "invalid_options" | "invalid_request";

/** Collects the problems of options, so that one error lists all of them. */
export class OptionsCheck {
  readonly #problems: string[] = [];
  readonly #Failure: new (code: CheckCode, message: string) => Error;

  /** `Failure`: the error class of the caller's wing. */
  constructor(Failure: new (code: CheckCode, message: string) => Error) {
    this.#Failure = Failure;
  }

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
  end(code: CheckCode = "invalid_options"): void {
    if (this.#problems.length > 0) throw new this.#Failure(code, this.#problems.join("; "));
  }
}
