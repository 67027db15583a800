/**
 * The programs of the documents and of doc comments (`ts` and `js`; the other kinds are in docs.test.ts). They are a project
 * of a user: compiled in the strictest mode, without a cast, against the packed tarball, and run with it.
 */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startPostgres, type TestPostgres, whyNoPostgres } from "./databases/postgres.ts";
import { findRedisPrograms } from "./databases/redis-programs.ts";
import { startRedis, type TestRedis } from "./databases/redis.ts";
import { allBlocks, exportsOf, root } from "./kits/documents.ts";
import { installPacked } from "./kits/packed.ts";

/** Programs run at once, and one of them is a whole suite: beside other work it has taken more than two minutes. */
const PROGRAM_MS = 300_000;

const SERVER = "http://127.0.0.1:4437";

// The reference repeats the doc comments, whose own blocks are here.
const programs = allBlocks
  .filter(({ language }) => language === "ts" || language === "js")
  // Those run in workerd: test/workers/guides.test.ts.
  .filter(({ info }) => !info.endsWith("(a Worker)"))
  .filter(({ where }) => !where.startsWith("docs/reference/"))
  .map(({ where, language, info, body }, at) => ({
    where,
    body,
    name: `program-${at}`,
    // Other programs of its page import it under this name.
    file: /\bfile=(\S+)/.exec(info)?.[1],
    isPlain: language === "js",
    // Each has a database of its own, which it finds as every client of PostgreSQL does: by PGHOST and the like.
    database: /from "(?:pg|postgres|knex|@prisma\/adapter-pg)"/.test(body)
      ? `program_${at}`
      : undefined,
    needsRedis: /from "(?:ioredis|redis)"/.test(body),
    // The server of `npx hapax serve`, which is killed in the middle.
    needsServer: body.includes(`connect("${SERVER}/`),
  }));
/** The guide whose programs have a table, which it shows. */
const GUIDE = "docs/guides/query-builders.md";
const table = allBlocks.find(
  ({ where, body }) => where.startsWith(GUIDE) && body.startsWith("CREATE TABLE"),
);
const reason = whyNoPostgres();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
let server: TestPostgres | undefined;
let redis: TestRedis | undefined;

/** What users have beside the package: their clients and frameworks, and what npm installs with it. */
const OF_USERS = [
  ...["@nestjs", "@prisma", "@types", "ai", "drizzle-orm", "express", "fastify", "hono", "jose"],
  ...["ioredis", "knex", "kysely", "libsql", "pg", "postgres", "react", "react-dom", "redis"],
  ...["reflect-metadata", "rxjs", "typeorm"],
];
let folder = "";
let errors = "";

/** On top of this repository's own: what a user may have on, and the types of the package itself. */
const compilerOptions = {
  strict: true,
  exactOptionalPropertyTypes: true,
  noUncheckedIndexedAccess: true,
  skipLibCheck: false,
  noEmit: false,
  // NestJS and TypeORM have decorators of the first kind.
  experimentalDecorators: true,
  outDir: "out",
  rootDir: ".",
  noUnusedLocals: false,
};

beforeAll(async () => {
  // A script without types; this is the part of it that is used.
  const prepare = (await import(new URL("../scripts/prepare.mjs", import.meta.url).href)) as {
    buildIfNeeded: () => Promise<void>;
  };
  await prepare.buildIfNeeded();
  folder = mkdtempSync(join(tmpdir(), "hapax-docs-"));
  const modules = join(folder, "node_modules");
  mkdirSync(modules);
  installPacked(modules);
  for (const name of OF_USERS) symlinkSync(join(root, "node_modules", name), join(modules, name));
  const generated = join(root, "test", "query-builders", "prisma", "generated");
  cpSync(generated, join(folder, "generated", "prisma"), { recursive: true });
  for (const { name, where, body, isPlain, file: shared } of programs) {
    const file = isPlain ? `${name}.mjs` : `${name}.ts`;
    if (shared !== undefined) writeFileSync(join(folder, shared), body);
    writeFileSync(join(folder, file), isPlain ? body : importsFor(where, body) + body);
  }
  const config = { extends: join(root, "tsconfig.json"), compilerOptions, include: ["*.ts"] };
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(config));
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
  const tsc = join(root, "node_modules", ".bin", "tsc");
  const result = spawnSync(tsc, ["-p", folder, "--pretty", "false"], { encoding: "utf8" });
  errors = result.stdout + result.stderr;
  if (reason === undefined) server = await startPostgres();
  const [program] = findRedisPrograms().programs;
  if (program !== undefined) redis = await startRedis(program);
  else if (process.env["CI"] === "true") throw new Error("there is no Redis");
  for (const { where, database } of programs) {
    if (database === undefined || server === undefined) continue;
    await server.pool.query(`CREATE DATABASE ${database}`);
    if (where.startsWith(GUIDE)) await makeTable(server.host, database);
  }
}, 120_000);

/** What newcomers copy. It compiles however their project resolves modules; how it runs does not depend on that. */
const isCopied = ({ where }: { readonly where: string }): boolean =>
  /^README\.md|^docs\/recipes\//.test(where) || where.startsWith(GUIDE);

test.for([
  { module: "node16", moduleResolution: "node16" },
  { module: "esnext", moduleResolution: "bundler" },
])("README and recipes compile with $moduleResolution too", { timeout: 180_000 }, (resolution) => {
  const copied = programs.filter((program) => isCopied(program) && !program.isPlain);
  expect(copied.length).toBeGreaterThan(15);
  const files = copied.map(({ name, file }) => file ?? `${name}.ts`);
  const path = join(folder, `tsconfig.${resolution.moduleResolution}.json`);
  const config = {
    extends: "./tsconfig.json",
    compilerOptions: { ...resolution, noEmit: true },
    include: [],
    files,
  };
  writeFileSync(path, JSON.stringify(config));
  const tsc = join(root, "node_modules", ".bin", "tsc");
  const { stdout } = spawnSync(tsc, ["-p", path, "--pretty", "false"], { encoding: "utf8" });
  // Not the declarations of others: those of hapax are among them (skipLibCheck: false).
  const ours = stdout.split("\n").filter((line) => line !== "" && !isOfOthers(line));
  expect(ours).toEqual([]);
});

/** A line about the declarations of another package, or the rest of a message. */
const isOfOthers = (line: string): boolean => /^\s|node_modules\/(?!hapax\/)/.test(line);

async function makeTable(host: string, database: string): Promise<void> {
  const client = new pg.Client({ host, user: "postgres", database });
  await client.connect();
  await client.query(table?.body ?? "");
  await client.end();
}

afterAll(async () => {
  await server?.stop();
  await redis?.stop();
  rmSync(folder, { recursive: true, force: true });
}, 60_000);

/** A comment inside the package may speak of its own module without an import. */
function importsFor(where: string, body: string): string {
  const path = where.replace(/:\d+$/, "");
  if (!path.startsWith("src/") || body.includes("import ")) return "";
  const values = exportsOf(path).filter(
    ({ name, kind }) => !["interface", "type"].includes(kind) && body.includes(name),
  );
  const built = path.replace(/^src/, "dist").replace(/ts$/, "js");
  const file = join(folder, "node_modules", "hapax", built);
  return `import { ${values.map(({ name }) => name).join(", ")} } from "${file}";\n`;
}

test("all programs compile together, and the types of the package with them", () => {
  const lines = errors.split("\n").filter((line) => line !== "");
  const isOther = /^\s|^program-\d+\.ts|node_modules\/(?!hapax\/)/;
  const others = lines.filter((line) => !isOther.test(line));
  expect(others).toEqual([]);
});

/** The program without imports, comments and the texts in quotes, in which words mean something else. */
function codeOf(body: string): string {
  const texts = /"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'/g;
  return body
    .replaceAll(/^import[^;]*;/gm, "")
    .replaceAll(texts, '""')
    .replaceAll(/\/\*[^]*?\*\/|\/\/.*/g, "");
}

/** A cast, `any`, or a value that is said to be there. */
const CASTS = /\bas (?!const\b)[\w{[(]+|\bany\b|<never>|[\w)\]]!(?=[.,;)\]])/g;

test("no program needs a cast", () => {
  const found = programs.flatMap(({ where, body, isPlain }) => {
    const silenced = body.match(/@ts-\w+/g) ?? [];
    const casts = isPlain ? [] : (codeOf(body).match(CASTS) ?? []);
    return [...silenced, ...casts].map((cast) => `${where}: ${cast}`);
  });
  expect(found).toEqual([]);
});

test.for(["x as never[]", "y as unknown as Z", "let a: any;", "rows[0]!.id", "f(x as { a: 1 })"])(
  "%s would be found",
  (code) => {
    expect(codeOf(`import { a as b } from "c";\n${code}`).match(CASTS)).not.toBeNull();
    expect(codeOf(`import * as a from "c"; // ${code}\nconst b = "${code}";`)).not.toMatch(CASTS);
  },
);

/** `hapax serve` on this port, with its streams in a directory; on any port if it is 0. Resolves when it listens. */
async function serve(directory: string, port: number) {
  const bin = join(folder, "node_modules", "hapax", "dist", "bin.js");
  const args = [bin, "serve", "--port", String(port), "--dir", directory];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "ignore"] });
  const url = await new Promise<string>((resolve, reject) => {
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      const found = /http:\S+/.exec(text)?.[0];
      if (found !== undefined) resolve(found);
    });
    child.once("close", () => {
      reject(new Error("hapax serve ended before it listened"));
    });
  });
  return { child, port: Number(new URL(url).port), url };
}

/** Ends a server as a crash does, and waits until its port and its directory are free. */
async function crash(child: ChildProcess): Promise<void> {
  child.kill("SIGKILL");
  await once(child, "close");
}

test.concurrent.for(programs)(
  "the program at $where runs",
  { timeout: PROGRAM_MS + 10_000 },
  async (
    { name, isPlain, database, needsRedis, needsServer },
    { expect, skip, onTestFinished },
  ) => {
    const own = errors.split("\n").filter((line) => line.includes(`${name}.ts`));
    expect(own).toEqual([]);
    // It compiles all the same.
    if (database !== undefined && reason !== undefined) {
      console.log(`skipped: a program with PostgreSQL: ${reason}`);
      skip(reason);
    }
    if (needsRedis && redis === undefined) {
      console.log("skipped: a program with Redis: there is no Redis");
      skip("there is no Redis");
    }
    const file = isPlain ? join(folder, `${name}.mjs`) : join(folder, "out", `${name}.js`);
    // The files that it makes are its own.
    const cwd = join(folder, "files", name);
    mkdirSync(cwd, { recursive: true });
    const first = needsServer ? await serve(join(cwd, "data"), 0) : undefined;
    if (first !== undefined) {
      writeFileSync(file, readFileSync(file, "utf8").replaceAll(SERVER, first.url));
    }
    const child = spawn(process.execPath, [file], {
      cwd,
      timeout: PROGRAM_MS,
      env: {
        ...process.env,
        ...(database === undefined
          ? {}
          : { PGHOST: server?.host, PGUSER: "postgres", PGDATABASE: database }),
        ...(needsRedis ? { REDIS_URL: redis?.url } : {}),
      },
    });
    let complaints = "";
    let output = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => (output += text));
    // console.assert does not end a program; it is heard here.
    child.stderr.setEncoding("utf8").on("data", (text: string) => (complaints += text));
    const closed = new Promise((resolve) => child.on("close", resolve));
    if (first !== undefined) {
      // At any moment of the program: it says that it survives that.
      await new Promise((resolve) => setTimeout(resolve, 300));
      await crash(first.child);
      const second = await serve(join(cwd, "data"), first.port);
      onTestFinished(() => crash(second.child));
    }
    const code = await closed;
    // A program that is a suite says on stdout what has failed.
    const printed =
      code === 0 ? "" : (output.match(/^.*not ok[^]*?\.\.\.$/gm) ?? [output]).join("\n");
    expect({ code, complaints, printed }).toEqual({ code: 0, complaints: "", printed: "" });
  },
);
