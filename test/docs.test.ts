/**
 * The documents are programs. Every code block of every document and of every doc comment is executed, and
 * what a block shows as output is compared with what came out.
 *
 *   console   `$ ` begins a command, `> ` continues it, the lines below are its output. `…` stands for any
 *             text, alone on a line for any lines. All blocks of a document share one shell and one fresh
 *             server. With `terminal=<name>` a block runs beside the others until the document ends.
 *   sh        one script that must succeed
 *   ts        compiled against the packed tarball, then run; it must print no error (docs-programs.test.ts)
 *   js        saved as .mjs and run as it is printed, by the Node that runs the tests (docs-programs.test.ts)
 *   html      a page, which Chromium runs (recipes.test.ts)
 *   mermaid   rendered, as a picture of the documentation site (site.test.ts)
 *   text      not executed; the reason stands in brackets behind the word
 *
 * The protocol's own examples are among them: PROTOCOL.md §2, §5.1, §7.4, §8, §11.6 and §12.2.
 */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, type TestContext } from "vitest";
import { type ErrorCode, ERRORS } from "../src/base/errors.ts";
import { ERROR_TITLES } from "../src/base/error-titles.ts";
import { LIMITS } from "../src/protocol/all-limits.ts";
import { QUOTAS } from "../src/streams/access/identity.ts";
import { resolveServerOptions } from "../src/streams/server/options.ts";
import { findRedisPrograms } from "./databases/redis-programs.ts";
import { startRedis, type TestRedis } from "./databases/redis.ts";
import {
  allBlocks,
  type Block,
  documents,
  exportsOf,
  filesBelow,
  read,
  root,
  sources,
} from "./kits/documents.ts";

const WAIT_MS = 45_000; // Less than the tests' own limit, so that the output so far is shown.

/** The processes that tests have started, so that none outlives a failure. */
const running = new Set<ChildProcess>();

function start(command: string, args: readonly string[], env: Record<string, string>) {
  // A process group of its own: a shell's children must end with it.
  const child = spawn(command, args, {
    cwd: root,
    env: { ...process.env, ...env, NO_COLOR: "1" },
    detached: true,
  });
  running.add(child);
  child.once("close", () => running.delete(child));
  child.on("error", () => running.delete(child));
  let output = "";
  const listeners = new Set<() => void>();
  const hear = (chunk: unknown): void => {
    output += String(chunk);
    for (const listener of listeners) listener();
  };
  child.stdout.setEncoding("utf8").on("data", hear);
  child.stderr.setEncoding("utf8").on("data", hear);
  /** The first match of the output so far, as soon as there is one. */
  const waitFor = (pattern: RegExp): Promise<RegExpExecArray> =>
    new Promise((resolve, reject) => {
      const look = (): void => {
        const match = pattern.exec(output);
        if (match === null) return;
        finish();
        resolve(match);
      };
      const fail = (): void => {
        finish();
        reject(new Error(`${command} did not print ${String(pattern)}, but:\n${output}`));
      };
      const timer = setTimeout(fail, WAIT_MS);
      const finish = (): void => {
        clearTimeout(timer);
        listeners.delete(look);
        child.off("close", fail);
        child.off("error", fail);
      };
      listeners.add(look);
      child.on("close", fail);
      child.on("error", fail);
      look();
    });
  return { child, waitFor };
}

function stop(child: ChildProcess): void {
  if (child.pid === undefined || !running.delete(child)) return;
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch (error) {
    // It ended by itself in this moment.
    if (!(error instanceof Error && "code" in error && error.code === "ESRCH")) throw error;
  }
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer().once("error", reject);
    probe.listen(0, "127.0.0.1", () => {
      const address = probe.address();
      probe.close(() => {
        if (typeof address === "object" && address !== null) resolve(address.port);
        else reject(new Error("no port"));
      });
    });
  });
}

interface Command {
  readonly text: string;
  readonly shown: string;
}

function commandsOf({ language, body, where }: Block): readonly Command[] {
  if (language === "sh") return [{ text: body, shown: "…" }];
  const commands: { text: string; shown: string }[] = [];
  for (const line of body.split("\n").slice(0, -1)) {
    const last = commands.at(-1);
    if (line.startsWith("$ ")) commands.push({ text: line.slice(2), shown: "" });
    else if (last === undefined) throw new Error(`${where}: output comes before a command`);
    else if (line.startsWith("> ") && last.shown === "") last.text += `\n${line.slice(2)}`;
    else last.shown += `${line}\n`;
  }
  return commands;
}

const escape = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** What is shown, as a pattern: `…` in a line is any text, alone it is any lines. */
function shownPattern(shown: string): RegExp {
  const lines = shown.trimEnd().split("\n");
  const parts = lines.map((line, at) => {
    const end = at === lines.length - 1 ? "" : "\\n";
    if (line === "…") return end === "" ? "(?:.|\\n)*" : "(?:.*\\n)*?";
    return line.split("…").map(escape).join(".*") + end;
  });
  return new RegExp(`^${parts.join("")}$`);
}

function expectShown(where: string, command: Command, output: string): void {
  const came = output.replaceAll("\r\n", "\n").trimEnd();
  if (shownPattern(command.shown).test(came)) return;
  // The comparison has failed; as texts, the difference can be seen.
  expect(came, `${where}: $ ${command.text}`).toBe(command.shown.trimEnd());
}

/** A shell that stays: functions and variables live on from command to command. */
function openShell(env: Record<string, string>) {
  const { child, waitFor } = start("bash", ["--noprofile", "--norc"], env);
  let count = 0;
  // On a terminal curl shows no progress by itself.
  child.stdin?.write('curl() { command curl -sS "$@"; }\n');
  // What npx does with the bin of this package, without its second of looking for it.
  child.stdin?.write('npx() { [ "$1" = hapax ] && shift && node dist/bin.js "$@"; }\n');
  const send = (text: string): RegExp => {
    count += 1;
    const [begin, end] = [`<begin ${count}>`, `<end ${count}`];
    child.stdin?.write(`echo '${begin}'\n{ ${text}\n} </dev/null 2>&1\necho "${end} $?>"\n`);
    return new RegExp(`${begin}\\n([\\s\\S]*?)${end} (\\d+)>\\n`);
  };
  return {
    waitFor,
    begun: () => new RegExp(`<begin ${count}>\\n.*\\S`),
    send,
    async run(where: string, command: Command): Promise<void> {
      const [, output = "", code = ""] = await waitFor(send(command.text));
      expectShown(where, command, output);
      expect(code, `${where}: exit code of $ ${command.text}\n${output}`).toBe("0");
    },
  };
}

/** The commands with which a document starts its server, and the program that each stands for. */
const STARTS = new Map([
  ["npm start", ["npm", "start"]],
  ["npx hapax serve", ["node", "dist/bin.js", "serve"]],
]);

/** Starts the server of a document: as its first block shows, or silently. */
async function startServer(blocks: readonly Block[], env: Record<string, string>): Promise<void> {
  const block = blocks.find((one) => STARTS.has(commandsOf(one)[0]?.text ?? ""));
  if (block === undefined) {
    await start("node", ["dist/bin.js", "serve"], env).waitFor(/^hapax listening on /m);
    return;
  }
  const [command] = commandsOf(block);
  const lines = rewritten(command?.shown ?? "", env)
    .trimEnd()
    .split("\n");
  const [program = "", ...args] = STARTS.get(command?.text ?? "") ?? [];
  const server = start(program, args, env);
  for (const line of lines) await server.waitFor(new RegExp(`^${escape(line)}$`, "m"));
}

const rewritten = (text: string, env: Record<string, string>): string =>
  text.replaceAll("4437", env["HAPAX_PORT"] ?? "");

/** A Redis for the documents whose commands need one; the others have none. */
async function startRedisFor(
  blocks: readonly Block[],
  context: TestContext,
): Promise<TestRedis | undefined> {
  if (!blocks.some(({ body }) => body.includes("redis.mjs"))) return undefined;
  const [program] = findRedisPrograms().programs;
  if (program !== undefined) return startRedis(program);
  if (process.env["CI"] === "true") throw new Error("there is no Redis");
  console.log("skipped: commands with Redis: there is no Redis");
  return context.skip("there is no Redis");
}

async function runDocument(
  blocks: readonly Block[],
  others: Record<string, string>,
): Promise<void> {
  const port = String(await freePort());
  const directory = mkdtempSync(join(tmpdir(), "hapax-docs-"));
  const env = {
    HAPAX_PORT: port,
    HAPAX_URL: `http://127.0.0.1:${port}`,
    HAPAX_DIR: directory,
    ...others,
  };
  await startServer(blocks, env);
  const shell = openShell(env);
  const beside: { where: string; command: Command; done: Promise<RegExpExecArray> }[] = [];
  for (const block of blocks) {
    for (const { text, shown } of commandsOf(block)) {
      const command = { text: rewritten(text, env), shown: rewritten(shown, env) };
      if (STARTS.has(text)) continue;
      if (!block.info.includes("terminal=")) {
        await shell.run(block.where, command);
        continue;
      }
      const terminal = openShell(env);
      const done = terminal.waitFor(terminal.send(command.text));
      done.catch(() => undefined); // Awaited below, unless an earlier command fails the test.
      await terminal.waitFor(terminal.begun());
      beside.push({ where: block.where, command, done });
    }
  }
  for (const { where, command, done } of beside) {
    const [, output = ""] = await done;
    expectShown(where, command, output);
  }
}

/** CI has the tools that the documents need. Elsewhere a missing one is said, not hidden. */
function requireTools(context: TestContext): void {
  for (const tool of ["bash", "curl"]) {
    if (spawnSync(tool, ["--version"]).status === 0) continue;
    const reason = `${tool} is not installed: the commands of the documents cannot be run`;
    const isCi = !["", "false"].includes(process.env["CI"] ?? "");
    if (isCi) throw new Error(reason);
    console.warn(reason);
    context.skip(reason);
  }
}

afterAll(() => {
  for (const child of running) stop(child);
});

beforeAll(async () => {
  // A script without types; this is the part of it that is used.
  const prepare = (await import(new URL("../scripts/prepare.mjs", import.meta.url).href)) as {
    buildIfNeeded: () => Promise<void>;
  };
  await prepare.buildIfNeeded();
}, 120_000);

test("every code block is of a kind that is executed, or says why it is not", () => {
  const kinds = ["console", "sh", "ts", "js", "html", "mermaid"];
  const silent = allBlocks
    .filter(({ language }) => !kinds.includes(language))
    .filter(({ language, info }) => language !== "text" || !/^text \(.{10,}\)$/.test(info));
  expect(silent.map(({ where, info }) => `${where}: \`\`\`${info}`)).toEqual([]);
  const open = documents.filter(
    ({ text, blocks }) => (text.match(/^\s*```/gm) ?? []).length !== 2 * blocks.length,
  );
  expect(open.map(({ path }) => `${path}: a fence is not closed, or indented`)).toEqual([]);
  expect(allBlocks.filter(({ language }) => kinds.includes(language)).length).toBeGreaterThan(15);
});

describe("commands", () => {
  const withCommands = documents
    .map(({ path, blocks }) => ({
      path,
      blocks: blocks.filter(({ language }) => language === "console" || language === "sh"),
    }))
    .filter(({ blocks }) => blocks.length > 0);

  test.for(withCommands)(
    "the commands of $path print what it shows",
    { timeout: 120_000 },
    async ({ blocks }, context) => {
      requireTools(context);
      const redis = await startRedisFor(blocks, context);
      try {
        await runDocument(blocks, redis === undefined ? {} : { REDIS_URL: redis.url });
      } finally {
        await redis?.stop();
      }
    },
  );

  test("every example is run by a document", () => {
    const texts = documents.map(({ text }) => text).join("\n");
    // A folder has the parts of the program of its name.
    const examples = filesBelow("examples", ".mjs").filter((path) => path.split("/").length === 2);
    expect(examples.length).toBeGreaterThan(0);
    for (const path of examples) expect(texts).toContain(`\n$ node ${path}\n`);
  });
});

describe("exported names", () => {
  const manifest = JSON.parse(read("package.json")) as {
    exports: Record<string, { default?: string } | string>;
  };
  const entries = Object.entries(manifest.exports).flatMap(([entry, target]) => {
    if (typeof target === "string") return [];
    const source = (target.default ?? "").replace("./dist/", "src/").replace(/\.js$/, ".ts");
    const [before = "", after] = source.split("*");
    const paths =
      after === undefined
        ? [source]
        : sources.filter((path) => dirname(path) === dirname(`${before}x`) && path.endsWith(after));
    return paths.map((path) => ({ entry: `hapax${entry.slice(1)}`, path }));
  });

  test("every exported name has a sentence that says what it is", () => {
    const silent = new Set<string>();
    for (const { name, path, comment } of entries.flatMap((entry) => exportsOf(entry.path))) {
      if (comment === undefined || !/[.!?:]\s/.test(comment)) silent.add(`${path}: ${name}`);
    }
    expect([...silent]).toEqual([]);
  });

  test.for(entries)("$entry ($path) shows a program that uses it", ({ path }) => {
    const names = exportsOf(path);
    expect(names.length).toBeGreaterThan(0);
    expect(names.filter(({ comment }) => comment?.includes("```ts")).length).toBeGreaterThan(0);
  });
});

describe("facts", () => {
  test("every status beside an error code is the one of errors.ts", () => {
    const wrong: string[] = [];
    let count = 0;
    for (const { path, text } of documents) {
      for (const [pair, status = "", code = ""] of text.matchAll(/\b([45]\d\d) `([a-z_]+)`/g)) {
        count += 1;
        const known = new Map<string, { status: number }>(Object.entries(ERRORS)).get(code);
        if (known?.status !== Number(status)) wrong.push(`${path}: ${pair}`);
      }
    }
    expect(wrong).toEqual([]);
    expect(count).toBeGreaterThan(50);
  });

  // The codes of PROTOCOL.md §10. What a whole problem looks like is a command of that page.
  test("docs/errors.md says of every code what errors.ts says", () => {
    const rows = read("docs/errors.md")
      .split("\n")
      .filter((line) => line.startsWith("| `"))
      .map((line) => line.replaceAll(/ +\|/g, " |"));
    const expected = Object.entries(ERRORS).map(
      ([code, { status, retry, help }]) =>
        `| \`${code}\` | ${status} | ${retry} | ${ERROR_TITLES[code as ErrorCode]}. | ${help} |`,
    );
    expect(rows.toSorted()).toEqual(expected.toSorted());
  });

  test("every limit that PROTOCOL.md names is one of limits.ts, an option or a quota", () => {
    const members = ["leaseMs", "delayMs", "jitterMs", "waitMs", "attemptMax"]; // Of bodies, and not limits.
    const options = Object.keys(resolveServerOptions());
    const known: readonly string[] = [...Object.keys(LIMITS), ...options, ...QUOTAS, ...members];
    const named = read("PROTOCOL.md").matchAll(/`([a-z]+(?:[A-Z][a-z]+)*(?:Max|Min|Ms|Default))`/g);
    const names = [...new Set(Array.from(named, (match) => match[1] ?? ""))];
    expect(names.length).toBeGreaterThan(20);
    expect(names.filter((name) => !known.includes(name))).toEqual([]);
  });

  test("every link to a file leads to one", () => {
    const broken: string[] = [];
    for (const { path, text } of documents) {
      for (const [link, target = ""] of text.matchAll(/\]\(([^)#\s]+)(?:#[^)]*)?\)/g)) {
        if (/^https?:/.test(target)) continue;
        if (!existsSync(join(root, dirname(path), target))) broken.push(`${path}: ${link}`);
      }
    }
    expect(broken).toEqual([]);
  });
});
