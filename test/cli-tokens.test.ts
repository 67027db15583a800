/** API keys with the built program: real processes, a real file, and a server that serves. PROTOCOL.md §21.8. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { Agent, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";

import { createAuthority } from "./kits/certificates.ts";
import { callTls, issueLocal } from "./kits/tls-server.ts";

const bin = fileURLToPath(new URL("../dist/bin.js", import.meta.url));
const running = new Set<ChildProcess>();
const agents: Agent[] = [];
let folder = "";
let dir = "";

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "hapax-tokens-"));
  dir = join(folder, "data");
});

afterEach(() => {
  for (const agent of agents.splice(0)) agent.destroy();
  for (const child of running) child.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
});

function start(words: readonly string[], more: Readonly<Record<string, string>> = {}) {
  const clean = Object.entries(process.env).filter(([name]) => !name.startsWith("HAPAX_"));
  const child = spawn(process.execPath, [bin, ...words], {
    cwd: folder,
    env: { ...Object.fromEntries(clean), HAPAX_DIR: dir, ...more },
    stdio: ["ignore", "pipe", "pipe"],
  });
  running.add(child);
  let [out, errors] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (text: string) => void (out += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => void (errors += text));
  const done = once(child, "close").then(() => {
    running.delete(child);
    return { code: child.exitCode, out, errors };
  });
  return { child, done, errors: () => errors, out: () => out };
}

async function run(...words: readonly string[]) {
  return start(words).done;
}

async function makeKey(...words: readonly string[]): Promise<{ key: string; id: string }> {
  const { code, out, errors } = await run("tokens", "create", "--name", "ci", ...words);
  expect([code, errors.includes("made key")]).toEqual([0, true]);
  const key = out.trim();
  return { key, id: key.slice(4, 16) };
}

async function serve(more: Readonly<Record<string, string>> = {}, ...words: readonly string[]) {
  const server = start(["serve", "--port", "0", ...words], more);
  await vi.waitFor(() => expect(server.out()).toMatch(/^hapax listening on \S+/m), 30_000);
  const url = /^hapax listening on (\S+)/m.exec(server.out())?.[1] ?? "";
  return { ...server, url };
}

interface Call {
  readonly method: string;
  readonly token?: string | undefined;
  readonly body?: string;
  readonly path?: string;
}

/** A client with one connection, which it keeps. */
function connect(url: string) {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  agents.push(agent);
  const ports = new Set<number | undefined>();
  const send = ({ method, token, body, path = "/v1/stream/a" }: Call): Promise<number> =>
    new Promise((resolve, reject) => {
      const headers = {
        "content-type": "text/plain",
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      };
      const outgoing = request(url + path, { method, agent, headers }, (answer) => {
        ports.add(answer.socket.localPort);
        answer.resume().once("end", () => {
          resolve(answer.statusCode ?? 0);
        });
      });
      outgoing.once("error", reject).end(body);
    });
  return { send, connections: () => ports.size };
}

describe("hapax tokens in several processes", () => {
  test("G49 eight at once lose no key and no revocation", async () => {
    const { id } = await makeKey("--allow", "read");
    const made = await Promise.all([
      ...Array.from({ length: 7 }, () => makeKey("--allow", "read")),
      run("tokens", "revoke", id).then(() => ({ id })),
    ]);
    const { out } = await run("tokens", "list", "--json");
    const lines = out
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as { id: string; state: string });
    expect(new Set(lines.map((line) => line.id))).toEqual(new Set(made.map((one) => one.id)));
    expect(lines.filter(({ state }) => state === "revoked").map((line) => line.id)).toEqual([id]);
    expect(readdirSync(dir).toSorted()).toEqual(["tokens.json", "tokens.json.lock"]);
  });

  test("one that is killed in the middle keeps no other from working", async () => {
    await makeKey("--allow", "read");
    for (let round = 0; round < 5; round += 1) {
      const { child, done } = start(["tokens", "create", "--name", "x", "--allow", "read"]);
      // The lock is a folder with files in it while a process holds it.
      await vi.waitFor(
        () =>
          expect(
            readdirSync(join(dir, "tokens.json.lock")).length > 0 || child.exitCode !== null,
          ).toBe(true),
        { timeout: 20_000, interval: 1 },
      );
      child.kill("SIGKILL");
      await done;
    }
    const { id } = await makeKey("--allow", "read");
    expect((await run("tokens", "list")).out).toContain(id);
  });
});

describe("a server with a file of keys", () => {
  test("demands a key of every request, and each key may do what its grants say", async () => {
    const all = await makeKey("--allow", "all");
    const reader = await makeKey("--allow", "read", "--streams", "a");
    const { url, child, done, errors } = await serve();
    expect(errors()).toContain(
      `every request needs a credential: 2 keys of ${join(dir, "tokens.json")}`,
    );
    const { send } = connect(url);
    const wrong = `${all.key.slice(0, -1)}${all.key.endsWith("0") ? "1" : "0"}`;
    for (const token of [undefined, wrong, "x", reader.key.replace("hpx", "hpy")]) {
      expect(await send({ method: "PUT", token })).toBe(401);
      expect(await send({ method: "POST", token, body: "1" })).toBe(401);
      expect(await send({ method: "GET", token, path: "/v1/stream/a?offset=-1" })).toBe(401);
    }
    expect(await send({ method: "PUT", token: all.key })).toBe(201);
    expect(await send({ method: "POST", token: all.key, body: "1" })).toBe(204);
    expect(await send({ method: "GET", token: reader.key, path: "/v1/stream/a?offset=-1" })).toBe(
      200,
    );
    expect(await send({ method: "POST", token: reader.key, body: "1" })).toBe(403);
    expect(await send({ method: "GET", token: reader.key, path: "/v1/stream/b?offset=-1" })).toBe(
      403,
    );
    expect(await send({ method: "GET", path: "/healthz" })).toBe(200);
    child.kill("SIGTERM");
    expect((await done).code).toBe(0);
    expect(errors()).not.toContain(all.key.slice(17, 60));
  });

  test("G49 a revoked key is refused on the same connection within a second, a new one is let in", async () => {
    const { key, id } = await makeKey("--allow", "all");
    const { url, errors } = await serve();
    const { send, connections } = connect(url);
    expect(await send({ method: "PUT", token: key })).toBe(201);
    expect(await send({ method: "POST", token: key, body: "1" })).toBe(204);
    await run("tokens", "revoke", id);
    const revokedMs = performance.now();
    await vi.waitFor(
      async () => expect(await send({ method: "POST", token: key, body: "2" })).toBe(401),
      { timeout: 10_000, interval: 10 },
    );
    // A second by itself; a busy machine may take longer to look.
    expect(performance.now() - revokedMs).toBeLessThan(5000);
    expect(connections()).toBe(1);
    expect(errors()).toContain(`API keys: revoked ci:${id}`);
    const next = await makeKey("--allow", "append", "--streams", "a");
    await vi.waitFor(
      async () => expect(await send({ method: "POST", token: next.key, body: "3" })).toBe(204),
      10_000,
    );
  });

  test("does not start with a file that others can read, and says what to do", async () => {
    await makeKey("--allow", "all");
    const path = join(dir, "tokens.json");
    chmodSync(path, 0o644);
    const { code, errors } = await run("serve", "--port", "0");
    expect(code).toBe(2);
    expect(errors).toContain(
      `mode 0644, so other users of this machine can read or change it: run chmod 600 ${path}`,
    );
  });

  test("goes on with the old keys when the file breaks, and reports it", async () => {
    const { key } = await makeKey("--allow", "all");
    const { url, errors } = await serve();
    const { send } = connect(url);
    expect(await send({ method: "PUT", token: key })).toBe(201);
    const path = join(dir, "tokens.json");
    const text = readFileSync(path, "utf8");
    writeFileSync(path, text.replace('"grants"', '"grant"'));
    await vi.waitFor(() => expect(errors()).toContain("THE OLD KEYS STAY IN FORCE"), 10_000);
    expect(await send({ method: "POST", token: key, body: "1" })).toBe(204);
    expect(await send({ method: "POST", body: "1" })).toBe(401);
  });

  test("may listen beyond this machine", async () => {
    const refused = await run("serve", "--port", "0", "--host", "0.0.0.0");
    expect([refused.code, refused.errors.includes("there is no authentication")]).toEqual([
      2,
      true,
    ]);
    const { key } = await makeKey("--allow", "all");
    const { url } = await serve({}, "--host", "0.0.0.0");
    const { send } = connect(url.replace("0.0.0.0", "127.0.0.1"));
    expect(await send({ method: "PUT", token: key })).toBe(201);
  });
});

describe("a server without a file of keys", () => {
  test("takes one token of the environment, which no output shows", async () => {
    const token = "0123456789abcdefghijklmnopqrstuvwxyz";
    const secret = { HAPAX_SERVER_TOKEN: token, HAPAX_DIR: "" };
    const { url, errors, out } = await serve(secret, "--memory");
    expect(errors()).toContain("every request needs a credential: HAPAX_SERVER_TOKEN");
    const { send } = connect(url);
    expect(await send({ method: "PUT" })).toBe(401);
    expect(await send({ method: "PUT", token: `${token}0` })).toBe(401);
    expect(await send({ method: "PUT", token })).toBe(201);
    expect(await send({ method: "POST", token, body: "1" })).toBe(204);
    expect(errors() + out()).not.toContain(token);
    const checked = await start(["config", "check"], secret).done;
    expect([checked.code, checked.out.includes(token)]).toEqual([0, false]);
    const weak = await start(["serve", "--port", "0"], { HAPAX_SERVER_TOKEN: "hunter2" }).done;
    expect([weak.code, weak.errors.includes("hunter2")]).toEqual([2, false]);
    expect(weak.errors).toContain("HAPAX_SERVER_TOKEN must have at least 32");
  });

  test("needs a restart for its first key, and says so", async () => {
    const { url, errors } = await serve();
    const { send } = connect(url);
    expect(await send({ method: "PUT" })).toBe(201);
    await makeKey("--allow", "all");
    await vi.waitFor(() => expect(errors()).toContain("STILL LETS EVERY CLIENT IN"), 10_000);
    expect(await send({ method: "POST", body: "1" })).toBe(204);
  });

  test("does not start if the named file is missing", async () => {
    const { code, errors } = await run(
      "serve",
      "--port",
      "0",
      "--tokens-file",
      join(folder, "t.json"),
    );
    expect(code).toBe(2);
    expect(errors).toContain(`hapax tokens create --tokens-file ${join(folder, "t.json")}`);
  });
});

test("a client with a certificate needs no secret: serve --tls-client-ca and a key for its name", async () => {
  const [servers, clients] = [createAuthority("servers"), createAuthority("clients")];
  const own = issueLocal(servers);
  const files = { cert: own.cert, key: own.key, ca: clients.cert };
  for (const [name, text] of Object.entries(files)) {
    writeFileSync(join(folder, `${name}.pem`), text, { mode: 0o600 });
  }
  const words = ["--certificate", "worker-1", "--allow", "create"];
  expect((await run("tokens", "create", "--name", "worker", ...words)).code).toBe(0);
  const tls = ["--tls-cert", "cert.pem", "--tls-key", "key.pem", "--tls-client-ca", "ca.pem"];
  const server = await serve({}, ...tls);
  const call = async (name: string, method: string): Promise<number> => {
    const options = { ca: servers.cert, ...clients.issue({ name }) };
    return (await callTls(method, `${server.url}/v1/stream/a`, options)).status;
  };
  expect(await call("worker-1", "PUT")).toBe(201);
  expect(await call("worker-1", "GET")).toBe(403);
  expect(await call("worker-2", "PUT")).toBe(401);
});
