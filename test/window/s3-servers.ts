/**
 * Real servers that speak S3, if this machine has them:
 *
 *   versitygw    `go install github.com/versity/versitygw/cmd/versitygw@latest`; checks signatures, honours If-None-Match
 *   moto_server  `pip install "moto[server]"`; does not check signatures, honours If-None-Match
 *
 * They are looked for on the path and in ~/go/bin, or where HAPAX_VERSITYGW and HAPAX_MOTO_SERVER say. If one of these variables is
 * set, its program must be there. moto_server is slow to start: it takes part if HAPAX_LONG=1, or if there is no versitygw. If it is not
 * there either, it is had from PyPI once, and kept in a folder for all tests.
 */

import { type ChildProcess, execFile, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { homedir, tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import type { S3Options } from "../../src/toolkit/window.ts";

export const CREDENTIALS = { accessKeyId: "tester", secretAccessKey: "of-the-tests-alone" };
const BUCKET = "hapax-tests";

export interface S3Server {
  readonly name: string;
  readonly options: S3Options & { readonly credentials: typeof CREDENTIALS };
  close(): void;
}

/** The program; undefined if this machine does not have it. Throws if it should be there and is not. */
function found(program: string, variable: string): string | undefined {
  const told = process.env[variable] ?? "";
  if (told !== "" && !existsSync(told)) throw new Error(`${variable}=${told} is not there`);
  const folders = [...(process.env["PATH"] ?? "").split(delimiter), join(homedir(), "go", "bin")];
  return [told, ...folders.map((folder) => join(folder, program))].find(
    (place) => place !== "" && existsSync(place),
  );
}

/** The servers, with a way to start those that this machine has. */
export function realServers(): {
  readonly name: string;
  readonly start?: () => Promise<S3Server>;
}[] {
  const versity = found("versitygw", "HAPAX_VERSITYGW");
  const servers = [
    { name: "versitygw", ...(versity === undefined ? {} : { start: () => startVersity(versity) }) },
  ];
  if (process.env["HAPAX_LONG"] !== "1" && versity !== undefined) return servers;
  const moto = found("moto_server", "HAPAX_MOTO_SERVER");
  return [
    ...servers,
    { name: "moto_server", start: async () => startMoto(moto ?? (await downloadedMoto())) },
  ];
}

/** What S3 needs of it: all of moto has a hundred megabytes. */
const MOTO = ["moto[s3]==5.2.1", "flask==3.1.3", "flask-cors==6.0.2"];
const MOTO_FOLDER = join(tmpdir(), `hapax-moto-5.2.1-${process.getuid?.() ?? 0}`);
/** Registries may be slow; a test that waits for them must not hang. */
const DOWNLOAD_MS = 90_000;

/** The program from PyPI. Throws `Unavailable` if it cannot be had. */
async function downloadedMoto(): Promise<string> {
  const program = join(MOTO_FOLDER, "bin", "moto_server");
  if (existsSync(program)) return program;
  const fresh = mkdtempSync(`${MOTO_FOLDER}-new-`);
  const pip = ["-m", "pip", "install", "-q", "--no-warn-script-location", "--target", fresh];
  const why = await new Promise<string | undefined>((resolve) => {
    execFile("python3", [...pip, ...MOTO], { timeout: DOWNLOAD_MS }, (error, _, words) =>
      resolve(error === null ? undefined : words.trim().split("\n").at(-1) || error.message),
    );
  });
  // Another process may have been faster.
  if (why === undefined && !existsSync(MOTO_FOLDER)) renameSync(fresh, MOTO_FOLDER);
  else rmSync(fresh, { recursive: true, force: true });
  if (existsSync(program)) return program;
  throw new Unavailable(`moto_server is not installed, and could not be had from PyPI: ${why}`);
}

/** A server that this machine cannot have. */
export class Unavailable extends Error {}

async function startVersity(program: string): Promise<S3Server> {
  const folder = mkdtempSync(join(tmpdir(), "hapax-versity-"));
  mkdirSync(join(folder, BUCKET));
  const port = await freePort();
  const child = spawn(program, ["--quiet", "--port", `127.0.0.1:${port}`, "posix", folder], {
    stdio: "ignore",
    env: {
      ...process.env,
      ROOT_ACCESS_KEY: CREDENTIALS.accessKeyId,
      ROOT_SECRET_KEY: CREDENTIALS.secretAccessKey,
    },
  });
  const url = `http://127.0.0.1:${port}/${BUCKET}`;
  await answers(url, child);
  return serverOf("versitygw", url, () => {
    child.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  });
}

async function startMoto(program: string): Promise<S3Server> {
  const port = await freePort();
  const child = spawn(program, ["-H", "127.0.0.1", "-p", String(port)], {
    stdio: "ignore",
    // A downloaded one has its modules beside it.
    ...(program.startsWith(MOTO_FOLDER) && { env: { ...process.env, PYTHONPATH: MOTO_FOLDER } }),
  });
  const url = `http://127.0.0.1:${port}/${BUCKET}`;
  await answers(url, child);
  await fetch(url, { method: "PUT" });
  return serverOf("moto_server", url, () => void child.kill("SIGKILL"));
}

function serverOf(name: string, url: string, close: () => void): S3Server {
  return { name, options: { url, credentials: CREDENTIALS }, close };
}

async function answers(url: string, child: ChildProcess): Promise<void> {
  for (;;) {
    if (child.exitCode !== null) throw new Error(`the server ended with code ${child.exitCode}`);
    const answer = await fetch(url).catch(() => undefined);
    if (answer !== undefined) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === "object" && address !== null ? address.port : 0;
}
