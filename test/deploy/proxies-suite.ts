/** The published suite through a proxy of deploy/proxies. */

import { test } from "vitest";
import { requirePart } from "../client/runtimes-kit.ts";
import { runPublishedSuiteOn } from "../protocol/published-suite.ts";
import { PROXIES, startBehind } from "./proxies-kit.ts";

export function runPublishedSuiteBehind(name: string): void {
  const proxy = PROXIES.find((one) => one.name === name);
  if (proxy === undefined) throw new Error(`there is no proxy ${name}`);
  // The suite calls `fetch`, which learns of an authority only before the process starts.
  process.env["NODE_TLS_REJECT_UNAUTHORIZED"] = "0";
  if (proxy.isHere()) runPublishedSuiteOn(name, (longPollMs) => startBehind(proxy, { longPollMs }));
  else
    test(`the published suite through ${name}`, (context) => {
      requirePart(context, undefined, `${name} is not installed: not tested`);
    });
}
