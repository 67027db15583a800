/** What a page gets in place of what it asked for. */

/** What the server answered in place of what was asked for. */
export class Refusal extends Error {
  /** 0: there was no answer. */
  readonly status: number;
  readonly code: string;
  readonly help: string;
  /** The members of the answer. */
  readonly facts: Readonly<Record<string, unknown>>;

  constructor(
    status: number,
    code: string,
    detail: string,
    help: string,
    facts: Readonly<Record<string, unknown>> = {},
  ) {
    super(detail);
    this.facts = facts;
    this.status = status;
    this.code = code;
    this.help = help;
  }
}

/** Reads the words of an answer that is no success: those of a server, or of a proxy before it. */
export async function refusalOf(response: Response): Promise<Refusal> {
  const { status } = response;
  const text = await response.text().catch(() => "");
  let problem: Readonly<Record<string, unknown>> = {};
  try {
    const parsed: unknown = JSON.parse(text);
    if (typeof parsed === "object" && parsed !== null) problem = { ...parsed };
  } catch {
    // A proxy answers in its own words.
  }
  const word = (name: string, otherwise: string): string => {
    const value = problem[name];
    return typeof value === "string" ? value : otherwise;
  };
  const detail = word("detail", `the answer is ${String(status)}`);
  return new Refusal(status, word("code", String(status)), detail, word("help", ""), problem);
}
