/** How a command says what it has done: one line for people, or the facts as JSON. */

import type { Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { createPaint, printable } from "./terminal.ts";

export async function tell(
  invocation: Invocation,
  context: Context,
  facts: object,
  verb: string,
  rest: string,
): Promise<void> {
  const paint = createPaint(context.stdout, context.env);
  const line = invocation.has("json")
    ? JSON.stringify(facts)
    : `${paint("green", verb)} ${printable(rest)}`;
  await context.stdout.write(`${line}\n`);
}
