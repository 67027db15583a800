/** `hapax close` and `hapax delete`: the two ways a stream ends. Both are for good. */

import { STREAM_CLOSED, STREAM_NEXT_OFFSET } from "../protocol/header-names.ts";
import { CLIENT_OPTIONS, type Command, type Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT } from "./failure.ts";
import { refusal, send, sendAct } from "./http.ts";
import { resolveStream } from "./target.ts";
import { tell } from "./tell.ts";
import { printable } from "./terminal.ts";

async function runClose(invocation: Invocation, context: Context): Promise<number> {
  const target = resolveStream(invocation, context, invocation.positionals[0] ?? "");
  const headers = { [STREAM_CLOSED]: "true" };
  const answer = await send(context, { target, method: "POST", headers });
  if (answer.status !== 200 && answer.status !== 204) throw refusal(target, answer);
  const nextOffset = answer.header(STREAM_NEXT_OFFSET) ?? "";
  const facts = { path: target.label, closed: true, nextOffset };
  const end = nextOffset === "" ? "" : `, final offset ${nextOffset}`;
  await tell(invocation, context, facts, "closed", `${target.label}${end}`);
  return EXIT.done;
}

async function runDelete(invocation: Invocation, context: Context): Promise<number> {
  const target = resolveStream(invocation, context, invocation.positionals[0] ?? "");
  // A script has decided already; a person at a terminal may have mistyped.
  if (context.stdin.isTerminal && context.stderr.isTerminal && !invocation.has("yes")) {
    const question = `Delete ${printable(target.url)} with all its data? This cannot be undone. [y/N] `;
    const answer = (await context.ask(question)).trim().toLowerCase();
    if (answer !== "y" && answer !== "yes") throw new CommandFailure(EXIT.refused, "not deleted");
  }
  const answer = await sendAct(context, { target, method: "DELETE" });
  if (answer.status !== 200 && answer.status !== 204) throw refusal(target, answer);
  await tell(invocation, context, { path: target.label, deleted: true }, "deleted", target.label);
  return EXIT.done;
}

export const closeCommand: Command = {
  name: "close",
  summary: "close a stream: it takes no more data",
  usage: ["hapax close <stream> [options]"],
  positionalsMin: 1,
  positionalsMax: 1,
  options: [...CLIENT_OPTIONS],
  details: [
    "Its data stays readable, and readers learn that it is complete. Closing twice is one close.",
  ],
  examples: [["no more orders", "hapax close orders"]],
  run: runClose,
};

export const deleteCommand: Command = {
  name: "delete",
  summary: "delete a stream and its data",
  usage: ["hapax delete <stream> [options]"],
  positionalsMin: 1,
  positionalsMax: 1,
  options: [{ name: "yes", short: "y", help: "do not ask" }, ...CLIENT_OPTIONS],
  details: [
    "Asks first when used at a terminal. Forks of the stream keep the data that they share.",
  ],
  examples: [["without a question", "hapax delete orders-test --yes"]],
  run: runDelete,
};
