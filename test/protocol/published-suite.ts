/** The published conformance suite of the protocol, all of it, against a real server on a real socket. */

import { runConformanceTests } from "@durable-streams/server-conformance-tests";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import {
  type NodeServer,
  type NodeServerOptions,
  startNodeServer,
} from "../../src/streams/runtimes/node.ts";
import type { Store } from "../../src/streams/store.ts";

/** How many there are in version 0.3.6, subscriptions included. A test that vanishes must be seen. */
const PUBLISHED_TESTS = 338;

export function runPublishedSuite(
  storeName: string,
  openStore: () => Promise<Store>,
  serverOptions: Partial<NodeServerOptions> = {},
): void {
  const options = { baseUrl: "", longPollTimeoutMs: 500, subscriptions: true };
  const passed = new Set<string>();
  let server: NodeServer;

  beforeAll(async () => {
    const longPollMs = options.longPollTimeoutMs;
    server = await startNodeServer({
      port: 0,
      longPollMs,
      ...serverOptions,
      store: await openStore(),
    });
    options.baseUrl = server.url;
  });

  afterAll(async () => {
    await server.stop();
  });

  afterEach(({ task }) => {
    if (task.result?.state !== "fail") passed.add(task.id);
  });

  describe(`published suite on the ${storeName} store`, () => {
    runConformanceTests(options);
  });

  test(`${PUBLISHED_TESTS} of ${PUBLISHED_TESTS} published tests ran and passed on the ${storeName} store`, () => {
    expect(passed.size).toBe(PUBLISHED_TESTS);
  });
}
