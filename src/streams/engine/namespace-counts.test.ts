// Counts of namespaces. PROTOCOL.md §21.3
import { expect, test } from "vitest";
import { joinScoped } from "../core/scoped-name.ts";
import { NamespaceCounts } from "./namespace-counts.ts";

const LIMITS = { what: "groups", withoutNamespace: 3, perNamespace: 2, inAll: 6 };
const nameOf = (namespace: string | undefined, name: string): string => joinScoped(namespace, name);

/** How many more a namespace may have. Adds them. */
function fill(counts: NamespaceCounts, namespace: string | undefined): number {
  for (let added = 0; ; added += 1) {
    const name = nameOf(namespace, `n${added}`);
    try {
      counts.admit(name);
    } catch {
      return added;
    }
    counts.add(name);
  }
}

test("G40 each namespace has a limit of its own, and so have identities without one", () => {
  const counts = new NamespaceCounts(LIMITS, []);
  expect([fill(counts, "/a"), fill(counts, "/a"), fill(counts, undefined)]).toEqual([2, 0, 3]);
  expect(fill(counts, "/b")).toBe(1); // The server is full.
  counts.remove(nameOf("/a", "n0"));
  expect([fill(counts, "/a"), fill(counts, "/b")]).toEqual([1, 0]);
});

test("counts begin with what is there", () => {
  const kept = [nameOf("/a", "x"), nameOf("/a", "y"), "z"];
  const counts = new NamespaceCounts(LIMITS, kept);
  expect([fill(counts, "/a"), fill(counts, undefined), fill(counts, "/b")]).toEqual([0, 2, 1]);
});
