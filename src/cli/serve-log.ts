/** Where `hapax serve` writes: notes, requests and faults to stderr, audit entries to stderr or to a file of their own. */

import { createLogWriter } from "../streams/server/log-writer.ts";
import { auditLogEntry, noteEntry } from "../streams/server/log-entries.ts";
import type { LogLevel } from "../streams/log.ts";
import { openAuditFile } from "./audit-file.ts";
import type { Context, ServeListeners, ServeOptions } from "./context.ts";

/** How long the end of the program waits for a reader of stderr that takes nothing. */
const LAST_LINES_MS = 1000;

export interface ServeLog extends ServeListeners {
  note(message: string, level?: LogLevel): void;
  /** Takes the last lines out, and closes the audit file. */
  close(): Promise<void>;
}

export function openServeLog(context: Context, options: ServeOptions): ServeLog {
  const { stderr } = context;
  const { logFormat, logLevel: level, auditFile: path } = options;
  const nowMs = (): number => context.nowMs();
  const format = logFormat === "auto" ? (stderr.isTerminal ? "text" : "json") : logFormat;
  const { log, settled } = createLogWriter((text) => stderr.write(text), { format, level, nowMs });
  const note = (message: string, noteLevel: LogLevel = "info"): void => {
    log(noteEntry(message, nowMs(), noteLevel));
  };
  const complain = (message: string): void => {
    note(message, "error");
  };
  const file = path === undefined ? undefined : openAuditFile(path, nowMs, complain);
  const forget = file === undefined ? undefined : context.onReload(() => file.reopen());
  return {
    log,
    note,
    onAudit(entry) {
      if (file === undefined) log(auditLogEntry(entry));
      else file.write(entry);
    },
    async close() {
      forget?.();
      file?.close();
      await Promise.race([settled(), context.wait(LAST_LINES_MS)]);
    },
  };
}
