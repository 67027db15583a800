// Tokens of the command line. PROTOCOL.md §21.1.
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { hapax, type Result } from "../../test/kits/cli-harness.ts";
import { openTokenDoor, type TokenDoor } from "../../test/kits/token-door.ts";
import { connect } from "../client/client.ts";
import { type NodeServer, startNodeServer } from "../streams/runtimes/node.ts";
import { COMMANDS } from "./commands.ts";
import { TOKEN_FILE_OPTION } from "./command.ts";

let directory: string;
let file: string;
let server: NodeServer;
let door: TokenDoor;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "hapax-token-"));
  file = join(directory, "token");
  server = await startNodeServer({ store: "memory", port: 0 });
  door = await openTokenDoor(server.url);
  await writeFile(file, `${door.issue()}\n`, { mode: 0o600 });
});

afterEach(async () => {
  await door.close();
  await server.stop();
  await rm(directory, { recursive: true, force: true });
});

const run = (
  words: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<Result> => hapax(words, { env: { HAPAX_URL: door.url, ...env } });

const shown = ({ stdout, stderr }: Result): string => stdout + stderr;

test("the token comes from HAPAX_TOKEN, or from a file that only its owner can open", async () => {
  const env = { HAPAX_TOKEN: door.issue() };
  expect((await run(["create", "orders"], env)).code).toBe(0);
  expect((await run(["append", "orders", "1", "--token-file", file])).code).toBe(0);
  const world = { env: { HAPAX_URL: door.url }, id: "another" };
  const before = await hapax(["--token-file", file, "append", "orders", "2"], world);
  expect(before.code).toBe(0);
  // The option is nearer than the variable.
  const both = await run(["read", "orders", "--token-file", file], { HAPAX_TOKEN: "other" });
  expect(both).toMatchObject({ code: 0, stdout: "1\n2\n" });
  expect(door.refusals).toBe(0);
});

test("a token in the arguments is refused, and not repeated", async () => {
  for (const words of [
    ["head", "orders", "--token", "a-secret"],
    ["head", "orders", "--token=a-secret"],
    ["--token=a-secret", "head", "orders"],
  ]) {
    const result = await run(words);
    expect(result.code).toBe(2);
    expect(result.stderr).toContain("HAPAX_TOKEN");
    expect(result.stderr).toContain("--token-file");
    expect(shown(result)).not.toContain("a-secret");
  }
  expect(door.visits).toEqual([]);
});

test("a file that others can open is refused, with what to do", async () => {
  for (const mode of [0o644, 0o640, 0o604, 0o660]) {
    await chmod(file, mode);
    const result = await run(["head", "orders", "--token-file", file]);
    expect(result.code).toBe(2);
    expect(result.stderr).toContain(`chmod 600 "${file}"`);
    expect(shown(result)).not.toContain(door.mark);
  }
  expect(door.visits).toEqual([]);
});

test("a file that is missing, empty or something else is refused, and what it has is not shown", async () => {
  const words = ["head", "orders", "--token-file"];
  const missing = await run([...words, join(directory, "none")]);
  expect(missing).toMatchObject({ code: 2 });
  expect(missing.stderr).toContain("ENOENT");
  for (const text of ["", "\n", "a-secret b-secret\n", "a-secret\nb-secret\n", "ä-secret"]) {
    await writeFile(file, text);
    const result = await run([...words, file]);
    expect(result.code).toBe(2);
    expect(result.stderr).toContain("has no token that can be sent");
    expect(shown(result)).not.toContain("-secret");
  }
  const result = await run(["head", "orders"], { HAPAX_TOKEN: "a-secret\n" });
  expect(result.code).toBe(2);
  expect(result.stderr).toContain("HAPAX_TOKEN has no token that can be sent");
  expect(shown(result)).not.toContain("a-secret");
  expect(door.visits).toEqual([]);
});

test("a refusal says what to do, and does not show the token", async () => {
  const none = await run(["read", "orders"]);
  expect(none).toMatchObject({ code: 1 });
  expect(none.stderr).toContain("401 unauthenticated");
  expect(none.stderr).toContain("set HAPAX_TOKEN or give --token-file");
  expect(none.stderr).toContain("hapax tokens create");
  door.expire();
  const env = { HAPAX_TOKEN: "hapax-secret-1" };
  // An answer to HEAD has no text of the server.
  for (const words of [
    ["read", "orders"],
    ["head", "orders"],
    ["dead-letters", "list", "orders"],
  ]) {
    const old = await run(words, env);
    expect(old.code).toBe(1);
    expect(old.stderr).toContain("does not take this token");
    expect(shown(old)).not.toContain(door.mark);
  }
  door.decide = () => "forbid";
  for (const words of [
    ["read", "orders"],
    ["head", "orders"],
    ["delete", "orders", "--json"],
  ]) {
    const result = await run(words, env);
    expect(result.code).toBe(1);
    expect(result.stderr).toContain("use a token that may do this");
    expect(shown(result)).not.toContain(door.mark);
  }
});

test("tail reads the file again when its token has expired, and goes on", async () => {
  const stream = connect(`${server.url}/v1/stream/orders`);
  await stream.create();
  await stream.append(1);
  let isRenewed = false;
  const result = await hapax(["tail", "orders", "--offset", "-1", "--token-file", file], {
    env: { HAPAX_URL: door.url },
    onOutput: (text) => {
      if (isRenewed || !text.includes("1\n")) return;
      isRenewed = true;
      door.expire();
      void writeFile(file, door.issue())
        .then(() => {
          door.cutAll();
        })
        .then(() => stream.close(2));
    },
  });
  expect(result).toMatchObject({ code: 0, stdout: "1\n2\n" });
  expect(new Set(door.visits.map(({ authorization }) => authorization))).toEqual(
    new Set(["Bearer hapax-secret-1", "Bearer hapax-secret-2"]),
  );
});

test("a credential of --header is sent instead of the token", async () => {
  const words = ["head", "orders", "--header", `Authorization: Bearer ${door.issue()}`];
  expect((await run(words, { HAPAX_TOKEN: "other" })).code).toBe(4);
  expect(door.refusals).toBe(0);
});

test("only commands that talk to a server read the token: serve does not", async () => {
  const names = COMMANDS.filter(({ options }) => options.includes(TOKEN_FILE_OPTION));
  expect(names.map(({ name }) => name)).not.toContain("serve");
  const read: string[] = [];
  const env = new Proxy<Record<string, string>>(
    { HAPAX_MEMORY: "1", HAPAX_TOKEN: "a-secret" },
    {
      get(target, name) {
        read.push(String(name));
        return Reflect.get(target, name) as unknown;
      },
    },
  );
  await hapax(["serve"], {
    env,
    startServer: () => Promise.reject(Object.assign(new Error("stop here"), { code: "EACCES" })),
  });
  expect(read).toContain("HAPAX_MEMORY");
  expect(read).not.toContain("HAPAX_TOKEN");
});
