/** The log of a server whose owner gave none: standard error, which may be slow, full or closed. */

import type { Log } from "../log.ts";
import { createLogWriter } from "../server/log-writer.ts";

let shared: Log | undefined;

/** One for the process: all servers share what waits to be taken. */
export function stderrLog(): Log {
  shared ??= open();
  return shared;
}

function open(): Log {
  // A reader of standard error that has gone must not end the program.
  process.stderr.on("error", () => undefined);
  const write = (text: string): Promise<void> =>
    new Promise((resolve) => {
      process.stderr.write(text, () => {
        resolve();
      });
    });
  const format = process.stderr.isTTY ? "text" : "json";
  const { log } = createLogWriter(write, { format, level: "info", nowMs: () => Date.now() });
  return (entry) => {
    // A program that embeds a server asks for the audit, or does not want it among its own lines.
    if (entry.event !== "audit") log(entry);
  };
}
