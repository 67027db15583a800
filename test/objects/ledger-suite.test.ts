// The contracts of ledgers and of outboxes inside a real Durable Object.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ledgerConformance } from "../../src/testing/ledger-conformance.ts";
import { outboxConformance } from "../../src/testing/outbox-conformance.ts";
import { type ObjectsHost, startObjects, whyNoWorkerd } from "../kits/workerd-objects.ts";

const reason = whyNoWorkerd();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: the ledger in a Durable Object: ${reason}`);

describe.skipIf(reason !== undefined)("a Durable Object", () => {
  let host: ObjectsHost;
  beforeAll(async () => {
    host = await startObjects({
      source: new URL("fixtures/ledger-suite.ts", import.meta.url),
      classes: ["LedgerSuite"],
    });
  });
  afterAll(() => host.stop());

  for (const [suite, cases] of [
    ["ledger", ledgerConformance],
    ["outbox", outboxConformance],
  ] as const)
    cases.forEach(({ title }, index) => {
      test(title, async (context) => {
        const object = host.object("LedgerSuite", suite);
        const { skipped, wrong } = await object.json<{ skipped?: string; wrong?: string }>(
          `/${suite}/${String(index)}`,
        );
        context.skip(skipped !== undefined, skipped);
        expect(wrong).toBeUndefined();
      });
    });
});
