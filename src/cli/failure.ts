/** How a command ends when it does not end well: an exit code, and lines that say what to do next. */

export const EXIT = {
  done: 0,
  /** The server said no, or `serve` could not start, or the person did. */
  refused: 1,
  /** The command line, an option or the input is not valid: nothing beyond what is reported was done. */
  usage: 2,
  /** No answer within the time for retries. The outcome of a write may be unknown. */
  unreachable: 3,
  notFound: 4,
} as const;

/** What a problem+json answer said, for `--json`. */
export interface ProblemDocument {
  readonly status?: number;
  readonly code?: string;
  readonly title?: string;
  readonly detail?: string;
  readonly help?: string;
  /** The offset at which the stream ends, where a condition on it failed. */
  readonly tail?: string;
}

export class CommandFailure extends Error {
  override readonly name = "CommandFailure";
  readonly exitCode: number;
  /** Printed below the message, one line each. */
  readonly advice: readonly string[];
  readonly problem: ProblemDocument;

  constructor(
    exitCode: number,
    message: string,
    advice: readonly string[] = [],
    problem: ProblemDocument = {},
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.exitCode = exitCode;
    this.advice = advice;
    this.problem = problem;
  }

  /** The same failure with more to say. */
  withAdvice(advice: readonly string[]): CommandFailure {
    const all = [...this.advice, ...advice];
    return new CommandFailure(this.exitCode, this.message, all, this.problem, { cause: this });
  }
}

export function usageFailure(message: string, advice: readonly string[] = []): CommandFailure {
  return new CommandFailure(EXIT.usage, message, advice);
}

/** The system's own code of an error, such as EPIPE; recognised by code, never by text. */
export function systemCode(error: unknown): string | undefined {
  if (typeof error !== "object" || error === null || !("code" in error)) return undefined;
  return typeof error.code === "string" ? error.code : undefined;
}
