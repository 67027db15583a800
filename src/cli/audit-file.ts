/**
 * The audit log as a file: one JSON line for each entry, in the file before the answer to its request leaves. Only its owner may read a
 * file that is made here. It is never cut or written over. To rotate it, rename it and send SIGHUP.
 */

import { closeSync, constants, fstatSync, openSync, readSync, writeSync } from "node:fs";

import type { AuditEntry } from "../streams/log.ts";
import { jsonLine } from "../streams/server/log-writer.ts";
import { CommandFailure, EXIT, systemCode } from "./failure.ts";

export interface AuditFile {
  write(entry: AuditEntry): void;
  /** Goes on in a new file of the same name, if the old one was renamed. Never throws. */
  reopen(): void;
  close(): void;
}

/** Between two complaints about a file that takes nothing. */
const COMPLAINT_MS = 1000;

/** `complain` gets a line about what could not be written, at most once a second. */
export function openAuditFile(
  path: string,
  nowMs: () => number,
  complain: (message: string) => void,
): AuditFile {
  let file = open(path);
  let lost = 0;
  let toldMs = Number.NEGATIVE_INFINITY;
  return {
    write(entry) {
      try {
        writeAll(file, Buffer.from(jsonLine(entry)));
      } catch (error) {
        lost += 1;
        if (nowMs() - toldMs < COMPLAINT_MS) return;
        toldMs = nowMs();
        complain(`audit entries could not be written to ${path}: ${String(error)}; lost=${lost}`);
      }
    },
    reopen() {
      try {
        const next = open(path);
        closeSync(file);
        file = next;
      } catch (error) {
        const message = error instanceof Error ? error.message : String(error);
        complain(`${message}; audit entries go on into the old file`);
      }
    },
    close() {
      closeSync(file);
    },
  };
}

function open(path: string): number {
  let file: number;
  try {
    const { O_RDWR, O_APPEND, O_CREAT, O_NOFOLLOW, O_NONBLOCK } = constants;
    // Without O_NONBLOCK the opening of a named pipe would wait for its reader.
    file = openSync(path, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0o600);
  } catch (error) {
    throw refusal(path, systemCode(error) ?? String(error), error);
  }
  const { size, isFile } = look(file);
  if (!isFile) {
    closeSync(file);
    throw refusal(path, "it is not a regular file");
  }
  // The end of a line that a crash or a full disk has cut.
  if (size > 0 && lastByte(file, size) !== 0x0a) writeSync(file, "\n");
  return file;
}

function look(file: number): { readonly size: number; readonly isFile: boolean } {
  const stats = fstatSync(file);
  return { size: stats.size, isFile: stats.isFile() };
}

function lastByte(file: number, size: number): number | undefined {
  const byte = Buffer.alloc(1);
  readSync(file, byte, 0, 1, size - 1);
  return byte[0];
}

function writeAll(file: number, bytes: Buffer): void {
  for (let at = 0; at < bytes.length;) at += writeSync(file, bytes, at);
}

function refusal(path: string, reason: string, cause?: unknown): CommandFailure {
  const message = `cannot open the audit file ${JSON.stringify(path)}: ${reason}`;
  return new CommandFailure(EXIT.usage, message, [], {}, { cause });
}
