// PROTOCOL.md §21.8: a server does not become open because a credential is missing.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type AccessOptions, openAccess } from "./node-access.ts";

const [onAudit, onNote, onFault] = [vi.fn(), vi.fn(), vi.fn()];
let dir = "";

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "hapax-access-"));
  onNote.mockReset();
});

afterEach(() => {
  rmSync(dir, { recursive: true, force: true });
});

async function open(options: AccessOptions) {
  const access = await openAccess(options, { onAudit, onNote, onFault });
  access.close();
  if (access.authorize !== undefined) return "guarded";
  expect(access.warning).toMatch(/^NO AUTHENTICATION: /);
  return "open";
}

test.each<[string, () => AccessOptions]>([
  ["a directory without a file of keys", () => ({ dir })],
  ["a server in memory", () => ({})],
])(
  "G40 %s starts with a warning, or not at all where authentication is required",
  async (_, of) => {
    expect(await open(of())).toBe("open");
    const refused = open({ ...of(), requireAuth: true });
    await expect(refused).rejects.toMatchObject({ code: "invalid_options" });
    await expect(refused).rejects.toThrow("no credential is configured");
  },
);

test("a token is enough, and nothing warns", async () => {
  expect(await open({ dir, serverToken: "t".repeat(32), requireAuth: true })).toBe("guarded");
  expect(onNote.mock.calls).toEqual([["every request needs a credential: HAPAX_SERVER_TOKEN"]]);
});

test("an empty token is refused, also with no other credential", async () => {
  await expect(open({ serverToken: "" })).rejects.toThrow("HAPAX_SERVER_TOKEN must have");
});
