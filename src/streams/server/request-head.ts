/**
 * The head of a request as it was sent, and which heads are refused before a handler sees them. A runtime that has the head
 * offers the check with its exchange. One that gets requests from a platform, such as `fetch`, has no head and bundles none of
 * this.
 */

import { SINGLE_HEADERS } from "../../protocol/headers.ts";
import { invalid } from "../../protocol/refusal.ts";
import { isAuthority, parseTarget } from "../../protocol/target.ts";

/** For a runtime that has it. */
export interface RequestHead {
  readonly target: string;
  /** The version of HTTP, such as `1.1`. */
  readonly version: string;
  /** Names and values in turn, as they were sent. */
  readonly lines: readonly string[];
  /** How many different names there are. */
  readonly names: number;
  /** `:authority` of HTTP/2, which takes the place of `Host`. */
  readonly authority?: string;
  /** A value by lower-case name. */
  field(name: string): string | undefined;
}

/** Refuses what HTTP libraries let through. */
export function checkHead(method: string, head: RequestHead): void {
  checkTarget(method, head);
  const sent = head.field("host");
  const { authority: host = sent } = head;
  if (host === undefined && head.version !== "1.0") throw invalid("Host", "is missing");
  if (sent !== undefined && sent.toLowerCase() !== host?.toLowerCase()) {
    throw invalid("Host", "is another one than :authority");
  }
  if (host !== undefined && !isAuthority(host)) {
    throw invalid("Host", "is not a host with an optional port");
  }
  const coding = head.field("transfer-encoding");
  if (coding !== undefined && coding.toLowerCase() !== "chunked") {
    throw invalid("Transfer-Encoding", "is not chunked");
  }
  const expect = head.field("expect");
  if (expect !== undefined && expect.toLowerCase() !== "100-continue") {
    throw invalid("Expect", "is not 100-continue");
  }
  checkRepeats(head);
}

function checkTarget(method: string, { target }: RequestHead): void {
  const parts = parseTarget(target);
  if (parts === undefined && !(target === "*" && method === "OPTIONS")) {
    throw invalid("the request target", "is neither a path nor an http URL");
  }
  if (parts?.authority !== undefined && !isAuthority(parts.authority)) {
    throw invalid("the request target", "has no host with an optional port");
  }
}

function checkRepeats({ lines, names }: RequestHead): void {
  if (names * 2 === lines.length) return;
  const seen = new Set<string>();
  for (let index = 0; index < lines.length; index += 2) {
    const name = lines[index]?.toLowerCase() ?? "";
    if (seen.has(name) && SINGLE_HEADERS.includes(name)) throw invalid(name, "is sent twice");
    seen.add(name);
  }
}
