// PROTOCOL.md §12 and §14 to §20, on the web platform's Request and Response: in Node, Bun, workerd, Deno, Hono and a route handler.
import { afterAll, describe, expect, test, vi } from "vitest";
import { extensionCases } from "../../src/testing/testing.ts";
import {
  bunProgram,
  denoProgram,
  EXTENSION_CASES,
  type FetchHost,
  skipWithout,
  startOnBun,
  startOnDeno,
  startOnNode,
  startOnWorkerd,
  workerdProgram,
} from "../kits/fetch-hosts.ts";
import { startAsRouteHandler, startOnHono } from "../kits/framework-hosts.ts";

vi.setConfig({ maxConcurrency: 16 });

const LONG_POLL_MS = 30_000;
const hosts: FetchHost[] = [];
/** What workerd keeps from the server. */
const UNSEEN: ReadonlyMap<string, string> = new Map([
  ["§15 If-Match with no tag at all matches no tail", "workerd drops headers without a value"],
  ["§15 If-None-Match: (empty) on PUT is refused", "workerd drops headers without a value"],
  [
    "§17 a held append that the client gives up is not stored",
    "workerd does not tell an object that the client has gone",
  ],
]);

afterAll(async () => {
  for (const host of hosts) await host.stop();
});

const [bun, workerd, deno] = [bunProgram(), workerdProgram(), denoProgram()];
/** A host that has every case only in `npm run test:crash`, and each eighth of the quick ones in `npm test`. */
interface Host {
  readonly name: string;
  readonly start: () => Promise<FetchHost>;
  readonly isSampled?: true;
}
const starts: readonly Host[] = [
  { name: "Node", start: () => startOnNode(LONG_POLL_MS) },
  ...(bun === undefined ? [] : [{ name: "Bun", start: () => startOnBun(bun, LONG_POLL_MS) }]),
  ...(workerd === undefined
    ? []
    : [{ name: "workerd", start: () => startOnWorkerd(workerd, LONG_POLL_MS) }]),
  ...(deno === undefined
    ? []
    : [{ name: "Deno", start: () => startOnDeno(deno, LONG_POLL_MS), isSampled: true as const }]),
  { name: "Hono", start: () => startOnHono(LONG_POLL_MS), isSampled: true },
  { name: "a route handler", start: () => startAsRouteHandler(LONG_POLL_MS), isSampled: true },
];
if (bun === undefined) skipWithout("bun");
if (workerd === undefined) skipWithout("workerd");
if (deno === undefined) skipWithout("deno");
const isLong = process.env["HAPAX_LONG"] !== undefined;

for (const { name, start, isSampled = false } of starts) {
  const host = await start();
  hosts.push(host);
  describe(`extensions on fetch in ${name}`, () => {
    const cases = extensionCases({ url: host.url }).toSorted(
      (one, other) => Number(other.isSlow) - Number(one.isSlow),
    );
    test(`there are ${EXTENSION_CASES} of them`, () => {
      expect(cases).toHaveLength(EXTENSION_CASES);
    });
    const isSample = isSampled && !isLong;
    const chosen = isSample ? cases.filter((one, at) => !one.isSlow && at % 8 === 0) : cases;
    for (const { title, run } of chosen) {
      const reason = name === "workerd" ? UNSEEN.get(title) : undefined;
      test.concurrent(title, (context) => (reason === undefined ? run() : context.skip(reason)));
    }
  });
}
