// PROTOCOL.md §12 and §14 to §20, on the web platform's Request and Response: in Node, in Bun and in workerd.
import { afterAll, describe, expect, test, vi } from "vitest";
import { extensionCases } from "../../src/testing/testing.ts";
import {
  bunProgram,
  type FetchHost,
  skipWithout,
  startOnBun,
  startOnNode,
  startOnWorkerd,
  workerdProgram,
} from "../kits/fetch-hosts.ts";

vi.setConfig({ maxConcurrency: 16 });

const LONG_POLL_MS = 30_000;
/** A case that vanishes must be seen. */
const CASES = 434;
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

const [bun, workerd] = [bunProgram(), workerdProgram()];
const starts = [
  { name: "Node", start: () => startOnNode(LONG_POLL_MS) },
  ...(bun === undefined ? [] : [{ name: "Bun", start: () => startOnBun(bun, LONG_POLL_MS) }]),
  ...(workerd === undefined
    ? []
    : [{ name: "workerd", start: () => startOnWorkerd(workerd, LONG_POLL_MS) }]),
];
if (bun === undefined) skipWithout("bun");
if (workerd === undefined) skipWithout("workerd");

for (const { name, start } of starts) {
  const host = await start();
  hosts.push(host);
  describe(`extensions on fetch in ${name}`, () => {
    const cases = extensionCases({ url: host.url }).toSorted(
      (one, other) => Number(other.isSlow) - Number(one.isSlow),
    );
    test(`there are ${CASES} of them`, () => {
      expect(cases).toHaveLength(CASES);
    });
    for (const { title, run } of cases) {
      const reason = name === "workerd" ? UNSEEN.get(title) : undefined;
      test.concurrent(title, (context) => (reason === undefined ? run() : context.skip(reason)));
    }
  });
}
