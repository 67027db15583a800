/** Makes log entries of what is no request, and keeps a server apart from a log that fails. */

import { HapaxError } from "../../base/errors.ts";
import { formatRfc3339 } from "../../protocol/values.ts";
import type { AuditEntry, Log, LogEntry, LogLevel } from "../log.ts";

export function noteEntry(message: string, nowMs: number, level: LogLevel = "info"): LogEntry {
  return { time: formatRfc3339(nowMs), level, event: "note", message };
}

export function faultEntry(error: unknown, nowMs: number): LogEntry {
  const isError = error instanceof Error;
  return {
    time: formatRfc3339(nowMs),
    level: "error",
    event: "fault",
    message: isError ? error.message : String(error),
    ...(error instanceof HapaxError ? { code: error.code } : {}),
    ...(isError && error.stack !== undefined ? { stack: error.stack } : {}),
  };
}

export function auditLogEntry(audit: AuditEntry): LogEntry {
  const { time, act, outcome } = audit;
  const level = outcome === "done" ? "info" : "warn";
  return { time, level, event: "audit", message: `${act} ${outcome}`, audit };
}

/** The same function, but what it throws or rejects with is dropped: nothing that is written down may harm what is served. */
export function harmless<Entry>(write: (entry: Entry) => void): (entry: Entry) => void {
  return (entry) => {
    try {
      // An async function is a `(entry) => void` for the compiler, and its rejection would end the process.
      const result: unknown = write(entry);
      if (result instanceof Promise) result.catch(() => undefined);
    } catch {
      // Dropped.
    }
  };
}

/** The log, or nothing. */
export function harmlessLog(log: Log | undefined): Log | undefined {
  return log === undefined ? undefined : harmless(log);
}
