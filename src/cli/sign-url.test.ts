// `hapax sign-url`. PROTOCOL.md §21.7.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { hapax } from "../../test/kits/cli-harness.ts";
import { asking } from "../../test/kits/tokens.ts";
import { signedUrlAuthorize } from "../streams/access/signed-url.ts";
import { createVirtualClock } from "../testing/virtual-clock.ts";

const folder = mkdtempSync(join(tmpdir(), "hapax-sign-url-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const secretOf = (letter: string): string => Buffer.alloc(32, letter).toString("base64url");
const keys = [
  { id: "new", secret: secretOf("n") },
  { id: "old", secret: secretOf("o") },
];
/** The time of the command. */
const NOW_MS = 1_000_000;

function fileOf(name: string, text: string, mode = 0o600): string {
  const path = join(folder, name);
  writeFileSync(path, text, { mode });
  return path;
}
const file = fileOf("keys.json", JSON.stringify({ keys }));

async function nameOf(url: string, method = "GET"): Promise<string> {
  const { pathname, search } = new URL(url);
  const authorize = signedUrlAuthorize({ keys, clock: createVirtualClock(NOW_MS) });
  const found = await authorize(asking({}, pathname + search, method));
  return "refused" in found ? found.refused : found.name;
}

test("prints a URL that the server takes, signed with the first key", async () => {
  const words = ["sign-url", "orders", "--expires", "10m", "--signing-keys-file", file];
  const { code, stdout } = await hapax(words);
  expect([code, stdout]).toEqual([
    0,
    expect.stringMatching(
      /^http:\/\/127\.0\.0\.1:4437\/v1\/stream\/orders\?hapax-action=read&hapax-expires=1600&hapax-key=new&hapax-signature=[\w-]{43}\n$/,
    ),
  ]);
  expect(await nameOf(stdout.trim())).toBe("signed-url:new");
});

test("takes action, offset, name and the file of the environment, and says when it ends", async () => {
  const from = "0000000000000000_0000000000000007";
  const env = { HAPAX_SIGNING_KEYS_FILE: file, HAPAX_URL: "https://proxy.example.com/base/" };
  const options = ["--expires", "1h", "--name", "alice", "--json"];
  const read = await hapax(["sign-url", "a b", ...options, "--from-offset", from], { env });
  const { url, expiresAt } = JSON.parse(read.stdout) as { url: string; expiresAt: string };
  expect(expiresAt).toBe("1970-01-01T01:16:40.000Z");
  // A proxy removes its part of the path, so the server sees the rest.
  expect(url).toMatch(/^https:\/\/proxy\.example\.com\/base\/v1\/stream\/a%20b\?offset=/);
  expect(await nameOf(url.replace("/base", ""))).toBe("alice");
  const appended = await hapax(["sign-url", "orders", ...options, "--action", "append"], { env });
  const append = (JSON.parse(appended.stdout) as { url: string }).url.replace("/base", "");
  expect(await nameOf(append, "POST")).toBe("alice");
  expect(await nameOf(append, "GET")).toBe("invalid");
});

test("signs a whole URL with its query, for EventSource", async () => {
  const stream = "https://streams.example.com/v1/stream/orders?offset=-1&live=sse";
  const words = ["sign-url", stream, "--expires", "7d", "--signing-keys-file", file];
  const { stdout } = await hapax(words);
  expect(stdout.startsWith(`${stream}&hapax-action=read&`)).toBe(true);
  expect(await nameOf(stdout.trim())).toBe("signed-url:new");
});

test.each([
  ["no time", ["orders"], /--expires is missing/],
  [
    "a time without a unit",
    ["orders", "--expires", "10"],
    /--expires is "10"; allowed: a time such as/,
  ],
  ["a time that is too long", ["orders", "--expires", "8d"], /at most 7 days/],
  ["another action", ["orders", "--expires", "1m", "--action", "delete"], /allowed: read, append/],
  ["an offset that is none", ["orders", "--expires", "1m", "--from-offset", "now"], /fromOffset/],
  ["a reserved path", ["/_hapax/streams", "--expires", "1m"], /not the URL of a stream/],
  ["no file", ["orders", "--expires", "1m", "--signing-keys-file", join(folder, "none")], /ENOENT/],
  [
    "a file that others can read",
    [
      "orders",
      "--expires",
      "1m",
      "--signing-keys-file",
      fileOf("open.json", JSON.stringify({ keys }), 0o644),
    ],
    /mode 0644, so other users.*run chmod 600/,
  ],
  [
    "a file that is too large",
    ["orders", "--expires", "1m", "--signing-keys-file", fileOf("large.json", " ".repeat(70_000))],
    /more than 65536 bytes/,
  ],
  [
    "a file with a short secret",
    [
      "orders",
      "--expires",
      "1m",
      "--signing-keys-file",
      fileOf("short.json", '{"keys":[{"id":"a","secret":"c2VjcmV0"}]}'),
    ],
    /keys\[0\] id=a must have a secret of at least 32 bytes/,
  ],
])("refuses %s, and shows no secret", async (_name, words, problem) => {
  const options = words.includes("--signing-keys-file") ? [] : ["--signing-keys-file", file];
  const { code, stdout, stderr } = await hapax(["sign-url", ...words, ...options]);
  expect([code, stdout]).toEqual([2, ""]);
  expect(stderr).toMatch(problem);
  for (const secret of [secretOf("n"), secretOf("o"), "c2VjcmV0"])
    expect(stderr).not.toContain(secret);
});

test("without a file it says which option is missing", async () => {
  const { code, stderr } = await hapax(["sign-url", "orders", "--expires", "1m"]);
  expect(code).toBe(2);
  expect(stderr).toMatch(/--signing-keys-file is missing/);
});
