/** Asks a person at a terminal before what cannot be undone. */

import type { Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT } from "./failure.ts";
import { printable } from "./terminal.ts";

/** A script has decided already; a person at a terminal may have meant fewer. */
export async function confirm(
  invocation: Invocation,
  context: Context,
  question: string,
  what: string,
): Promise<void> {
  if (!context.stdin.isTerminal || !context.stderr.isTerminal || invocation.has("yes")) return;
  const answer = (await context.ask(printable(`${question}\nGo on? [y/N] `))).trim().toLowerCase();
  if (answer !== "y" && answer !== "yes") throw new CommandFailure(EXIT.refused, `not ${what}`);
}
