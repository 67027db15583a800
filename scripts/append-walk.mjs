/**
 * `node scripts/append-walk.mjs [dist]`: the walk of one append through the fast lane, as it happens. A copy of dist gets
 * a mark at the start of every function and behind every await; a server of that copy takes one append of a producer on a
 * connection that has had some before; the marks say where the walk was.
 *
 * A crossing is a step from a function in one folder to a function in another one. Not counted, because they lead
 * nowhere: what `base/` answers (clock, assertions), and the headers that the protocol reads from the exchange, one by one.
 *
 * On its way in, until the store gets the batch, a walk should return to no file twice. A function that is done
 * without another file is a tool there, and no station. `--json` prints the result for a test.
 */

import { once } from "node:events";
import {
  cpSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseAst } from "rolldown/parseAst";
import { buildIfNeeded, main } from "./prepare.mjs";
import { root } from "./run.mjs";

const WALKED = /^(?:base|protocol|streams)[/\\].*\.js$/;
const NAMED = new Set(["MethodDefinition", "PropertyDefinition", "Property"]);

/** The name of a function, as a reader would look for it. */
function nameOf(node, parent, outer) {
  if (node.id) return node.id.name;
  if (parent?.type === "VariableDeclarator") return parent.id.name;
  if (!NAMED.has(parent?.type)) return `${outer} =>`;
  const mark = parent.key.type === "PrivateIdentifier" ? "#" : "";
  return `${mark}${parent.key.name}`;
}

/** Where the marks of a file go: pairs of a position and a text. */
function marksOf(tree, file) {
  const marks = [];
  const visit = (node, parent, outer) => {
    if (Array.isArray(node)) {
      for (const one of node) visit(one, parent, outer);
      return;
    }
    if (typeof node?.type !== "string") return;
    let name = outer;
    if (/Function/.test(node.type) && node.body && !node.generator) {
      name = nameOf(node, parent, outer);
      const { body } = node;
      const place = `${JSON.stringify(file)},${JSON.stringify(name)}`;
      if (body.type === "BlockStatement") {
        marks.push([body.start + 1, `__walk.enter(${place});try{`]);
        marks.push([body.end - 1, "}finally{__walk.leave()}"]);
      } else {
        marks.push([body.start, `(__walk.enter(${place}),__walk.leave(`], [body.end, "))"]);
      }
    }
    if (node.type === "AwaitExpression") {
      const place = `${JSON.stringify(file)},${JSON.stringify(`${name} …`)}`;
      marks.push([node.start, "__walk.resume("], [node.argument.start, "__walk.leave("]);
      marks.push([node.argument.end, ")"], [node.end, `,${place})`]);
    }
    for (const value of Object.values(node)) {
      if (typeof value === "object" && value !== null) visit(value, node, name);
    }
  };
  visit(tree, undefined, "");
  return marks.sort(([one], [other]) => one - other);
}

function markFile(path, file) {
  const source = readFileSync(path, "utf8");
  let [text, at] = ["", 0];
  for (const [position, mark] of marksOf(parseAst(source), file)) {
    text += source.slice(at, position) + mark;
    at = position;
  }
  writeFileSync(path, text + source.slice(at));
}

/** Takes the marks and makes a tree of the calls; each turn of the event loop adds to `steps`. */
class Walk {
  steps = [];
  isOn = false;
  #stack = [];

  enter(file, name) {
    const step = { file, name, steps: [] };
    if (this.isOn) (this.#stack.at(-1) ?? this).steps.push(step);
    this.#stack.push(step);
  }

  leave(value) {
    this.#stack.pop();
    return value;
  }

  resume(value, file, name) {
    this.enter(file, name);
    return value;
  }
}

async function walkOf(dist) {
  const copy = mkdtempSync(join(tmpdir(), "hapax-walk-"));
  try {
    cpSync(dist, join(copy, "dist"), { recursive: true });
    writeFileSync(join(copy, "package.json"), '{ "type": "module" }');
    symlinkSync(join(root, "node_modules"), join(copy, "node_modules"), "junction");
    for (const file of readdirSync(join(copy, "dist"), { recursive: true })) {
      if (!WALKED.test(file)) continue;
      markFile(join(copy, "dist", file), file.replaceAll("\\", "/").replace(/js$/, "ts"));
    }
    const walk = new Walk();
    globalThis.__walk = walk;
    const entry = pathToFileURL(join(copy, "dist", "streams", "runtimes", "node.js")).href;
    const { startNodeServer } = await import(entry);
    await append(await startNodeServer({ store: "memory", port: 0 }), walk);
    return walk.steps;
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}

async function append(server, walk) {
  const { host, hostname, port } = new URL(server.url);
  const path = "/v1/stream/walk";
  const type = "Content-Type: text/plain";
  await fetch(server.url + path, { method: "PUT", headers: { "Content-Type": "text/plain" } });
  const socket = connect(Number(port), hostname);
  for (const sequence of [0, 1, 2]) {
    await new Promise((done) => setTimeout(done, 20));
    walk.isOn = sequence === 2;
    const producer = `Producer-Id: p\r\nProducer-Epoch: 0\r\nProducer-Seq: ${sequence}`;
    const head = `POST ${path} HTTP/1.1\r\nHost: ${host}\r\n${type}\r\nContent-Length: 5\r\n${producer}`;
    socket.write(`${head}\r\n\r\nhello`);
    const [answer] = await once(socket, "data");
    walk.isOn = false;
    if (!String(answer).startsWith("HTTP/1.1 200 ")) throw new Error(String(answer));
  }
  socket.destroy();
  await server.stop();
}

/** The exchange's getter, and functions that only call it. The policy does more: it finishes the answer. */
const isHeaderRead = ({ file, name, steps }) =>
  (file.includes("/runtimes/") && name === "header") ||
  (steps.length === 1 && !file.endsWith("/policy.ts") && steps.every(isHeaderRead));

/** Without what leads nowhere. */
function prune(steps) {
  return steps
    .filter((step) => !step.file.startsWith("base/") && !isHeaderRead(step))
    .map((step) => ({ ...step, steps: prune(step.steps) }));
}

const inOrder = (steps) => steps.flatMap((step) => [step, ...inOrder(step.steps)]);
const folderOf = ({ file }) => file.replace(/\/[^/]*$/, "");
const isTool = (step) => inOrder(step.steps).every(({ file }) => file === step.file);

function measure(steps) {
  const walked = inOrder(prune(steps));
  const parts = [];
  for (const step of walked) {
    const folder = folderOf(step);
    if (parts.at(-1)?.folder !== folder) parts.push({ folder, functions: [] });
    const name = `${step.file.slice(folder.length + 1)} ${step.name}`;
    if (parts.at(-1).functions.at(-1) !== name) parts.at(-1).functions.push(name);
  }
  const end = walked.findIndex(
    (step) => folderOf(step).endsWith("/stores") && step.name === "commit",
  );
  const visits = {};
  let last = "";
  for (const step of walked.slice(0, end)) {
    if (isTool(step) || step.file === last) continue;
    last = step.file;
    visits[last] = (visits[last] ?? 0) + 1;
  }
  const headers = inOrder(steps).filter((step) => step.name === "header" && isHeaderRead(step));
  const reads = headers.filter(({ file }) => file.includes("/runtimes/")).length;
  return { crossings: parts.length - 1, headerReads: reads, parts, visits };
}

await main(async () => {
  const [given] = process.argv.slice(2).filter((word) => !word.startsWith("--"));
  if (given === undefined) await buildIfNeeded();
  const result = measure(await walkOf(resolve(given ?? join(root, "dist"))));
  if (process.argv.includes("--json")) {
    console.log(JSON.stringify(result));
    return;
  }
  for (const { folder, functions } of result.parts) {
    console.log(`${folder}\n    ${functions.join("\n    ")}`);
  }
  console.log(`\ncrossings of folders: ${result.crossings}`);
  console.log(`headers read from the exchange: ${result.headerReads}`);
  const again = Object.entries(result.visits).filter(([, count]) => count > 1);
  for (const [file, count] of again) console.log(`returns on the way in: ${count - 1} ${file}`);
});
