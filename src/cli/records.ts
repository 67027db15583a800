/** Data of a stream on stdout, the same for `read` and `tail`. Records leave with their exact bytes. */

import { joinBytes } from "../base/bytes.ts";
import { splitJson, splitStoredJson } from "../protocol/json.ts";
import { sseKind } from "../protocol/sse.ts";
import type { Invocation, OptionSpec } from "./command.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT, usageFailure } from "./failure.ts";
import { printable } from "./terminal.ts";

export const RECORD_OPTIONS: readonly OptionSpec[] = [
  { name: "null", help: "end each JSON record with a NUL byte instead of a newline" },
  { name: "force", help: "write binary data, and control characters, to a terminal" },
];

export interface Written {
  readonly records: number;
  readonly bytes: number;
}

export interface RecordWriter {
  readonly isJson: boolean;
  /** Writes at most `bytesMax` bytes of data; JSON goes on to the end of the record that reaches it. */
  write(body: Uint8Array, bytesMax?: number): Promise<Written>;
  finish(): Promise<void>;
}

const NEWLINE = 0x0a;

export function createRecordWriter(
  invocation: Invocation,
  context: Context,
  contentType: string,
): RecordWriter {
  const kind = sseKind(contentType);
  const isGuarded = context.stdout.isTerminal && !invocation.has("force");
  if (kind === "base64" && isGuarded) {
    throw usageFailure(`the stream has binary data (${printable(contentType)})`, [
      "send it to a file or a program, or add --force to write it to the terminal",
    ]);
  }
  if (kind === "json") return createJsonWriter(context, invocation.has("null"), isGuarded);
  return {
    isJson: false,
    async write(body, bytesMax = Number.POSITIVE_INFINITY) {
      const part = body.subarray(0, Math.min(body.length, bytesMax));
      await context.stdout.write(isGuarded ? printable(new TextDecoder().decode(part)) : part);
      return { records: 0, bytes: part.length };
    },
    async finish() {},
  };
}

function createJsonWriter(
  context: Context,
  endsWithNull: boolean,
  isGuarded: boolean,
): RecordWriter {
  const end = Uint8Array.of(endsWithNull ? 0 : NEWLINE);
  let hasNewlines = false;
  return {
    isJson: true,
    async write(body, bytesMax = Number.POSITIVE_INFINITY) {
      const parts: Uint8Array[] = [];
      let records = 0;
      let bytes = 0;
      for (const record of jsonRecords(body)) {
        if (bytes >= bytesMax) break;
        hasNewlines ||= record.includes(NEWLINE);
        parts.push(record, end);
        records += 1;
        bytes += record.length;
      }
      const text = joinBytes(parts);
      await context.stdout.write(isGuarded ? printable(new TextDecoder().decode(text)) : text);
      return { records, bytes };
    },
    async finish() {
      if (!hasNewlines || endsWithNull) return;
      const note = "some records contain line breaks: use --null to separate records safely";
      await context.stderr.write(`hapax: ${note}\n`);
    },
  };
}

function jsonRecords(body: Uint8Array): readonly Uint8Array[] {
  const split = splitJson(body);
  if (split.kind === "records") return splitStoredJson(split.stored);
  throw new CommandFailure(EXIT.refused, `the server's answer is not JSON: ${split.reason}`);
}
