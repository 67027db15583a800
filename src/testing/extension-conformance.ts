/** The extensions of PROTOCOL.md as cases that any test runner can run against any server. */

import { actCases } from "./extension-cases-acts.ts";
import { adminCases } from "./extension-cases-admin.ts";
import { compactionCases } from "./extension-cases-compaction.ts";
import { compareCases } from "./extension-cases-compare.ts";
import { compressionCases } from "./extension-cases-compression.ts";
import { followAllCases } from "./extension-cases-follow-all.ts";
import { keyKindCases } from "./extension-cases-key-kinds.ts";
import { groupCommitCases } from "./extension-cases-group-commits.ts";
import { groupLeaseCases } from "./extension-cases-group-leases.ts";
import { groupCases } from "./extension-cases-groups.ts";
import { keyCases } from "./extension-cases-keys.ts";
import { lifeCases } from "./extension-cases-lives.ts";
import { patienceCases } from "./extension-cases-patience.ts";
import { retentionCases } from "./extension-cases-retention.ts";
import { readingBackCases } from "./extension-cases-reading-back.ts";
import { seekingCases } from "./extension-cases-seeking.ts";
import { sessionCases } from "./extension-cases-sessions.ts";
import { transactionAnswerCases } from "./extension-cases-transaction-answers.ts";
import { transactionDecisionCases } from "./extension-cases-transaction-decisions.ts";
import { transactionCases } from "./extension-cases-transactions.ts";
import { windowCases } from "./extension-cases-windows.ts";
import { type CaseSpec, type ExtensionCapability, Site } from "./extension-case-kit.ts";

export type { ExtensionCapability } from "./extension-case-kit.ts";

/** The server to test. */
export interface ExtensionTarget {
  /** Its URL, such as `http://127.0.0.1:4437`. */
  readonly url: string;
  /** The capabilities that it claims. Cases of other capabilities are left out. Default: all. */
  readonly capabilities?: readonly ExtensionCapability[];
}

/** One sentence of the protocol, as a function that any test runner can call. */
export interface ExtensionCase {
  /** The section of PROTOCOL.md, and the sentence. */
  readonly title: string;
  /** The section alone, such as `16.1`. */
  readonly section: string;
  readonly capability: ExtensionCapability;
  /** The case waits for a second or two of real time. Run such cases at the same time. */
  readonly isSlow: boolean;
  /** Runs the case. Throws an error that says what was expected and what was seen. */
  readonly run: () => Promise<void>;
}

const CASES: Readonly<Record<ExtensionCapability, readonly CaseSpec[]>> = {
  sessions: sessionCases,
  compare: compareCases,
  keys: keyCases,
  windows: [...windowCases, ...keyKindCases],
  patience: patienceCases,
  "reading-back": readingBackCases,
  lives: lifeCases,
  admin: [...adminCases, ...actCases],
  transactions: [...transactionCases, ...transactionDecisionCases, ...transactionAnswerCases],
  groups: [...groupCases, ...groupLeaseCases, ...groupCommitCases],
  compression: compressionCases,
  retention: retentionCases,
  compaction: compactionCases,
  seeking: seekingCases,
  "follow-all": followAllCases,
};

/** All capabilities that have cases. */
export const extensionCapabilities = Object.keys(CASES) as readonly ExtensionCapability[];

/**
 * Returns the cases for one server. They share nothing, so they can run at once and in any order. Each removes its
 * streams, which are all below `/v1/stream/hapax-conformance/`.
 *
 * ```ts
 * import { startNodeServer } from "hapax/node";
 * import { extensionCases } from "hapax/testing";
 *
 * const { url, stop } = await startNodeServer({ store: "memory", port: 0 });
 * for (const { isSlow, run } of extensionCases({ url, capabilities: ["compare"] })) {
 *   if (!isSlow) await run();
 * }
 * await stop();
 * ```
 */
export function extensionCases(target: ExtensionTarget): readonly ExtensionCase[] {
  const { url, capabilities = extensionCapabilities } = target;
  const folder = `/v1/stream/hapax-conformance/${crypto.randomUUID()}`;
  return capabilities.flatMap((capability) =>
    CASES[capability]
      .filter(({ needs = [] }) => needs.every((need) => capabilities.includes(need)))
      .map((spec, index) => bind(spec, capability, url, `${folder}/${capability}-${index}`)),
  );
}

function bind(
  spec: CaseSpec,
  capability: ExtensionCapability,
  url: string,
  folder: string,
): ExtensionCase {
  const { title, isSlow = false } = spec;
  const section = /^§([\d.]+) /.exec(title)?.[1] ?? "";
  let runs = 0;
  const run = async (): Promise<void> => {
    runs += 1;
    const site = new Site(url, `${folder}-${runs}`);
    await spec.run(site);
    await site.clear();
  };
  return { title, section, capability, isSlow, run };
}
