/** The published conformance suite of the protocol, all of it, against a real server on a real socket. */

import { runConformanceTests } from "@durable-streams/server-conformance-tests";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type NodeServerOptions, startNodeServer } from "../../src/streams/runtimes/node.ts";
import type { Store } from "../../src/streams/store.ts";

/** How many there are in version 0.3.6, subscriptions included. A test that vanishes must be seen. */
const PUBLISHED_TESTS = 338;
const OF_SUBSCRIPTIONS = 6;

interface Running {
  readonly url: string;
  stop(): Promise<void>;
}

export function runPublishedSuite(
  storeName: string,
  openStore: () => Promise<Store>,
  serverOptions: Partial<NodeServerOptions> = {},
): void {
  runPublishedSuiteOn(`the ${storeName} store`, async (longPollMs) =>
    startNodeServer({ port: 0, longPollMs, ...serverOptions, store: await openStore() }),
  );
}

/** `start` gets the time that a long-poll waits. A server may have been made without subscriptions. */
export function runPublishedSuiteOn(
  what: string,
  start: (longPollMs: number) => Promise<Running>,
  subscriptions = true,
): void {
  const count = subscriptions ? PUBLISHED_TESTS : PUBLISHED_TESTS - OF_SUBSCRIPTIONS;
  const options = { baseUrl: "", longPollTimeoutMs: 500, subscriptions };
  const passed = new Set<string>();
  let server: Running;

  describe(`published suite on ${what}`, () => {
    beforeAll(async () => {
      server = await start(options.longPollTimeoutMs);
      options.baseUrl = server.url;
    });

    afterAll(async () => {
      await server.stop();
    });

    afterEach(({ task }) => {
      if (task.result?.state !== "fail") passed.add(task.id);
    });

    runConformanceTests(options);
  });

  test(`${count} of ${count} published tests ran and passed on ${what}`, () => {
    expect(passed.size).toBe(count);
  });
}
