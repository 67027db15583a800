/**
 * Writes log entries as lines: JSON for programs, or words for people.
 *
 *   - an entry is one line (a fault in words has its stack below it), and no text in it can forge another one;
 *   - lines that the other side does not take are dropped from a limit on. They are counted, and a line says how many.
 */

import { asciiJson } from "../../base/quoting.ts";
import type { AuditEntry, Log, LogEntry, LogLevel } from "../log.ts";
import { noteEntry } from "./log-entries.ts";

const LEVELS: readonly LogLevel[] = ["error", "warn", "info", "debug"];
/** Of lines that the other side has not taken. */
const QUEUED_CHARACTERS_MAX = 1024 * 1024;

export interface LogWriterOptions {
  readonly format: "json" | "text";
  /** Entries that matter less are dropped. */
  readonly level: LogLevel;
  readonly nowMs: () => number;
}

export interface LogWriter {
  readonly log: Log;
  /** Resolves when all lines were taken. */
  readonly settled: () => Promise<void>;
}

/** `write` settles when the other side has taken the text, or has gone. */
export function createLogWriter(
  write: (text: string) => Promise<void>,
  { format, level, nowMs }: LogWriterOptions,
): LogWriter {
  const encode = format === "json" ? jsonLine : textLine;
  let queued = 0;
  let dropped = 0;
  const waiting: (() => void)[] = [];
  const send = (line: string): void => {
    queued += line.length;
    const taken = (): void => {
      queued -= line.length;
      if (queued === 0) for (const resolve of waiting.splice(0)) resolve();
      if (dropped === 0 || queued > QUEUED_CHARACTERS_MAX / 2) return;
      const message = `${dropped} log lines were dropped: they were not taken in time`;
      dropped = 0;
      send(encode(noteEntry(message, nowMs(), "warn")));
    };
    write(line).then(taken, taken);
  };
  return {
    log(entry) {
      if (LEVELS.indexOf(entry.level) > LEVELS.indexOf(level)) return;
      if (queued > QUEUED_CHARACTERS_MAX) dropped += 1;
      else send(encode(entry));
    },
    settled: () =>
      queued === 0 ? Promise.resolve() : new Promise((resolve) => waiting.push(resolve)),
  };
}

export function jsonLine(entry: LogEntry | AuditEntry): string {
  return `${asciiJson(entry)}\n`;
}

export function textLine(entry: LogEntry): string {
  const { time, level, message, audit } = entry;
  switch (entry.event) {
    case "note":
      return `hapax: ${lines(message)}\n`;
    case "fault":
      return `hapax: ${time} ${level}: ${lines(entry.stack ?? message)}\n`;
    case "audit":
      return `hapax: ${time} audit: ${message}${pairs({ ...audit, ...audit?.details }, SAID)}\n`;
    case "request": {
      const { method = "", path = "", status = 0 } = entry;
      return `hapax: ${time} ${level}: ${word(method)} ${word(path)} ${status}${pairs(entry, SAID)}\n`;
    }
  }
}

/** Members that are in the line already, or say the same in other words. */
const SAID = new Set(
  "time level event message method path status act outcome details stack route".split(" "),
);

function pairs(members: object, without: ReadonlySet<string>): string {
  return Object.entries(members)
    .filter(([name, value]) => !without.has(name) && value !== undefined)
    .map(([name, value]) => ` ${name}=${word(String(value))}`)
    .join("");
}

/** As it is, if it is one plain word; quoted otherwise. */
function word(text: string): string {
  return /^[!#-~]+$/.test(text) ? text : asciiJson(text);
}

/** Our own texts, which may have several lines and the words of strangers in them. */
function lines(text: string): string {
  return text.replaceAll(
    /(?![\t\n])\p{Cc}/gu,
    (character) => String.raw`\x` + (character.codePointAt(0) ?? 0).toString(16).padStart(2, "0"),
  );
}
