// PROTOCOL.md §1, §12 and §14 to §20, in a Durable Object with its own store, through the Worker in front.
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { extensionCapabilities, extensionCases } from "../../src/testing/testing.ts";
import {
  EXTENSION_CASES,
  freePort,
  skipShort,
  skipWithout,
  workerdProgram,
} from "../kits/fetch-hosts.ts";
import { type ObjectsHost, startObjects } from "../kits/workerd-objects.ts";
import { runPublishedSuiteOn } from "../protocol/published-suite.ts";

vi.setConfig({ maxConcurrency: 16 });

const source = new URL("fixtures/streams-worker.ts", import.meta.url);
/** An object keeps one stream for each socket of a reader (PROTOCOL.md §12.14): it is not asked for those of several streams. */
const CASES = EXTENSION_CASES - 8;
/** What workerd keeps from the server. */
const UNSEEN: ReadonlyMap<string, string> = new Map([
  ["§15 If-Match with no tag at all matches no tail", "workerd drops headers without a value"],
  ["§15 If-None-Match: (empty) on PUT is refused", "workerd drops headers without a value"],
  [
    "§17 a held append that the client gives up is not stored",
    "workerd does not tell an object that the client has gone",
  ],
]);

async function startOn(port: number, longPollMs: number, parts = "all"): Promise<ObjectsHost> {
  return startObjects({
    source,
    classes: ["Streams"],
    port,
    texts: {
      PUBLIC_URL: `http://127.0.0.1:${String(port)}`,
      LONG_POLL_MS: String(longPollMs),
      PARTS: parts,
      SNAPSHOT_COMMITS: "50", // So that pages and frames are read, and tables are dropped meanwhile.
    },
  });
}

if (workerdProgram() === undefined) skipWithout("workerd");
else if (!skipShort("an object, with its store")) {
  runPublishedSuiteOn("streams in an object", async (longPollMs) =>
    startOn(await freePort(), longPollMs),
  );

  // Streams alone, as a Worker has them that names no part: all that is published but for subscriptions.
  runPublishedSuiteOn(
    "streams in an object without parts",
    async (longPollMs) => startOn(await freePort(), longPollMs, "none"),
    false,
  );

  describe("extensions in an object", async () => {
    const port = await freePort();
    let host: ObjectsHost;
    beforeAll(async () => {
      host = await startOn(port, 30_000);
    });
    afterAll(() => host.stop());
    const cases = extensionCases({
      url: `http://127.0.0.1:${String(port)}`,
      capabilities: extensionCapabilities.filter((name) => name !== "follow-all"),
    });
    test(`there are ${CASES} of them`, () => {
      expect(cases).toHaveLength(CASES);
    });
    for (const { title, run } of cases) {
      const reason = UNSEEN.get(title);
      test.concurrent(title, (context) => (reason === undefined ? run() : context.skip(reason)));
    }
  });
}
