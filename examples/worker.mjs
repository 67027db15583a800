/**
 * A Worker on this machine: a chat whose answer is a stream, and accounts that transfer money between objects.
 *
 *   npm run build && node examples/worker.mjs            asks and transfers, kills workerd in the middle, and prints the verdict
 *   npm run build && node examples/worker.mjs --serve    serves the page until it is stopped
 *   npm run build && node examples/worker.mjs --build    only bundles, for wrangler
 *
 * The Worker is examples/worker/worker.mjs. workerd is the runtime of Cloudflare, from npm.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { connect } from "hapax/client";
import { rolldown } from "rolldown";
import workerd from "workerd";
import { answerTo } from "./worker/model.mjs";

const SOURCES = fileURLToPath(new URL("worker", import.meta.url));
const BUILT = join(SOURCES, "dist");

/** One file of a program and all that it imports, but for what workerd has. */
async function bundle(input, plugins = []) {
  const build = await rolldown({
    input: join(SOURCES, input),
    platform: "browser",
    external: /^cloudflare:/,
    moduleTypes: { ".html": "text", ".txt": "text" },
    plugins,
    logLevel: "silent",
  });
  const { output } = await build.generate({ format: "es", codeSplitting: false });
  await build.close();
  return output[0].code;
}

async function build() {
  const page = await bundle("page.mjs");
  const script = {
    name: "page",
    resolveId: (id) => (id === "./page.bundle.txt" ? "page.bundle" : undefined),
    load: (id) => (id === "page.bundle" ? `export default ${JSON.stringify(page)};` : undefined),
  };
  mkdirSync(BUILT, { recursive: true });
  writeFileSync(join(BUILT, "worker.mjs"), await bundle("worker.mjs", [script]));
}

/** What wrangler reads, as workerd reads it. */
function configOf(wrangler, port) {
  const { bindings } = wrangler.durable_objects;
  const named = bindings.map(
    ({ name, class_name: type }) => `(name = "${name}", durableObjectNamespace = "${type}")`,
  );
  const namespaces = bindings.map(
    ({ class_name: type }) => `(className = "${type}", uniqueKey = "${type}", enableSql = true)`,
  );
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = .worker), (name = "disk", disk = (writable = true))],
  sockets = [(name = "http", address = "127.0.0.1:${port}", http = (), service = "main")],
);
const worker :Workerd.Worker = (
  modules = [(name = "worker.mjs", esModule = embed "worker.mjs")],
  compatibilityDate = "${wrangler.compatibility_date}",
  bindings = [${named.join(", ")}],
  durableObjectNamespaces = [${namespaces.join(", ")}],
  durableObjectStorage = (localDisk = "disk"),
);
`;
}

function readWrangler() {
  const text = readFileSync(join(SOURCES, "wrangler.jsonc"), "utf8");
  return JSON.parse(text.replaceAll(/^\s*\/\/.*$/gm, "").replaceAll(/,(?=\s*[}\]])/g, ""));
}

/** Starts workerd with the objects of a directory. `port` 0 is any free one. */
async function start(directory, port = 0, output = "ignore") {
  writeFileSync(join(BUILT, "config.capnp"), configOf(readWrangler(), port));
  const args = ["serve", "config.capnp", "--control-fd=3", `--directory-path=disk=${directory}`];
  const child = spawn(workerd.default ?? workerd, args, {
    cwd: BUILT,
    stdio: ["ignore", output, output, "pipe"],
  });
  const [line] = await once(child.stdio[3], "data");
  const [listening] = line.toString().split("\n");
  return { child, url: `http://127.0.0.1:${JSON.parse(listening).port}` };
}

/** Sends a request until it has an answer. Everything here may be sent twice. */
async function post(url, body) {
  for (;;) {
    try {
      const answer = await fetch(url, { method: "POST", body: JSON.stringify(body) });
      if (answer.ok) return await answer.json();
    } catch {
      // workerd has been killed. It is back soon.
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function balances(url, names) {
  const one = async (name) => (await fetch(`${url}/balance?account=${name}`)).json();
  return Promise.all(names.map(one));
}

/** Reads the answer of a chat to its end, over all kills. */
async function readAnswer(url, prompt) {
  const { result } = await post(`${url}/chat`, { id: "chat-1", prompt });
  await post(`${url}/chat`, { id: "chat-1", prompt }); // A retry asks nothing twice.
  const stream = connect(url + result.stream, { retry: { pauseMs: 50, totalMs: 60_000 } });
  let isThere = false;
  while (!isThere) {
    isThere = await stream.head().then(
      () => true,
      () => false,
    );
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  let text = "";
  for await (const { value } of stream.follow({ patienceMs: 60_000 })) text += value;
  return text;
}

async function demonstrate(directory) {
  let { child, url } = await start(directory);
  const { port } = new URL(url);
  let isOver = false;
  let kills = 0;
  const killing = (async () => {
    while (!isOver) {
      await new Promise((resolve) => setTimeout(resolve, 700));
      if (isOver) return;
      child.kill("SIGKILL");
      await once(child, "exit");
      kills += 1;
      ({ child, url } = await start(directory, port));
    }
  })();
  const prompt = "Why is the sky blue?";
  const reading = readAnswer(url, prompt);
  for (const account of ["ann", "bob"]) {
    await post(`${url}/deposit`, { id: "first", account, cents: 50_00 });
  }
  for (let number = 0; number < 40; number += 1) {
    const [from, to] = number % 4 === 3 ? ["bob", "ann"] : ["ann", "bob"];
    const transfer = { id: `transfer-${number}`, from, to, cents: 100 };
    await post(`${url}/transfer`, transfer);
    await post(`${url}/transfer`, transfer); // Each is sent twice.
  }
  const text = await reading;
  isOver = true;
  await killing;
  const sum = ([ann, bob]) => ann + bob;
  let found = await balances(url, ["ann", "bob"]);
  while (sum(found) < 100_00) found = await balances(url, ["ann", "bob"]); // The last ones are on their way.
  child.kill();
  console.log(`workerd was killed ${kills > 1 ? "again and again" : `${kills} times`}`);
  const isExact = text === answerTo(prompt).join("");
  console.log(`the answer of the chat: ${isExact ? "every word once, in order" : text}`);
  console.log(`ann has ${found[0]}, bob has ${found[1]}, together ${sum(found)} of 10000`);
}

await build();
if (!process.argv.includes("--build")) {
  const isServing = process.argv.includes("--serve");
  const directory = isServing
    ? join(BUILT, "objects")
    : mkdtempSync(join(tmpdir(), "hapax-worker-"));
  mkdirSync(directory, { recursive: true });
  if (isServing) {
    const { child, url } = await start(directory, process.env.PORT ?? 8787, "inherit");
    console.log(url);
    process.once("SIGINT", () => child.kill());
    await once(child, "exit");
  } else {
    await demonstrate(directory);
    rmSync(directory, { recursive: true, force: true });
  }
}
