/** The rules of a stream on the wire: what it keeps, and whether it is a changelog. PROTOCOL.md §23, §26. */

import type { CompactionRule } from "../streams/core/compaction.ts";
import type { RetentionRule } from "../streams/core/trim.ts";
import { compactionHeaders, parseCompaction } from "./compaction.ts";
import { parseRetention, retentionHeaders } from "./retention.ts";

/** What parses and formats them. A server without retention has one that refuses. */
export interface RuleHeaders {
  readonly parseRetention: (text: string) => RetentionRule | "none";
  readonly parseCompaction: (text: string) => CompactionRule | "none";
  readonly format: (rules: StreamRules) => Readonly<Record<string, string>>;
}

interface StreamRules {
  readonly retention?: RetentionRule | undefined;
  readonly compaction?: CompactionRule | undefined;
}

export const RULE_HEADERS: RuleHeaders = {
  parseRetention,
  parseCompaction,
  format: ({ retention, compaction }) => ({
    ...retentionHeaders(retention),
    ...compactionHeaders(compaction),
  }),
};
