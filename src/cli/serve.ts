/**
 * `hapax serve`: options, the ready line, and an orderly end.
 *
 *   - the ready line is printed when requests are accepted and not before;
 *   - the first SIGTERM or SIGINT drains and ends with 0; a second one ends at once.
 */

import { isHapaxError } from "../base/errors.ts";
import { SERVER_TOKEN_VARIABLE } from "../streams/access/key-document.ts";
import type { Command, Invocation } from "./command.ts";
import { loadConfiguration } from "./configuration.ts";
import type { Context, RunningServer, ServeOptions, StopSignal } from "./context.ts";
import { CommandFailure, EXIT, systemCode } from "./failure.ts";
import { createReloader } from "./reload.ts";
import { openServeLog } from "./serve-log.ts";
import { withoutPassword } from "./option-kinds.ts";
import { SERVE_OPTIONS } from "./serve-options.ts";

async function runServe(invocation: Invocation, context: Context): Promise<number> {
  const loaded = await loadConfiguration(invocation, context);
  const { file } = loaded;
  const options = withServerToken(loaded.options, context);
  const journal = openServeLog(context, options);
  // Listens for signals before the server starts: one that comes early must not be lost.
  const signals = watchSignals(context);
  const reloader = createReloader(invocation, context, loaded, journal);
  try {
    const starting = context.startServer(options, journal).catch((error: unknown) => {
      throw startFailure(options, error);
    });
    // A server that waits for another one to end has nothing to finish.
    const isPatient = options.store !== undefined && options.takeover === "wait";
    if (isPatient) journal.note("waits until no other server owns the streams");
    const server = await (isPatient
      ? Promise.race([starting, signals.first.then(() => undefined)])
      : starting);
    if (server === undefined) return EXIT.done;
    if (file !== undefined) journal.note(`configured by ${file.path}`);
    journal.note(whereDataLives(server, options));
    if (options.testFaults) journal.note("clients may inject faults (--test-faults)", "warn");
    await announce(invocation, context, server);
    reloader.begin(server);
    const signal = await signals.first;
    journal.note(`${signal}: finishing open requests`);
    await server.stop();
    return EXIT.done;
  } finally {
    signals.forget();
    reloader.forget();
    await journal.close();
  }
}

function withServerToken(options: ServeOptions, { env }: Context): ServeOptions {
  const serverToken = env[SERVER_TOKEN_VARIABLE];
  return serverToken === undefined ? options : { ...options, serverToken };
}

async function announce(
  invocation: Invocation,
  context: Context,
  { url, durability }: RunningServer,
): Promise<void> {
  const line = invocation.has("json")
    ? JSON.stringify({ listening: url, durability })
    : `hapax listening on ${url} (durability: ${durability})`;
  await context.stdout.write(`${line}\n`);
}

function watchSignals(context: Context) {
  let forget = (): void => {};
  const first = new Promise<StopSignal>((resolve) => {
    let count = 0;
    forget = context.onSignal((signal) => {
      count += 1;
      if (count > 1) context.exitNow(signal === "SIGINT" ? 130 : 143);
      resolve(signal);
    });
  });
  return {
    first,
    forget() {
      forget();
    },
  };
}

function whereDataLives({ durability }: RunningServer, options: ServeOptions): string {
  if (durability === "memory") {
    return "streams live in memory: they are gone when this process ends";
  }
  const kept =
    durability === "replicated"
      ? "the loss of its primary"
      : durability === "fsync"
        ? "a power cut"
        : "the end of this process, not a power cut";
  const place = options.store === undefined ? options.dir : withoutPassword(options.store);
  return `streams live in ${place ?? "the store"} and survive ${kept}`;
}

const START_PROBLEMS: Readonly<Record<string, string>> = {
  EADDRINUSE: "another program listens there; stop it, or choose another --port (0 for any)",
  EACCES: "not allowed; ports below 1024 need special rights",
  EADDRNOTAVAIL: "this machine does not have that address",
  ENOTFOUND: "the host name is not known",
};

function startFailure(options: ServeOptions, error: unknown): unknown {
  if (isHapaxError(error, "invalid_options")) {
    return new CommandFailure(EXIT.usage, error.message, [error.help], {}, { cause: error });
  }
  if (isHapaxError(error)) {
    const problem = { code: error.code };
    return new CommandFailure(EXIT.refused, error.message, [error.help], problem, { cause: error });
  }
  const code = systemCode(error);
  // Without a code it is a fault of ours, and its stack is worth more than a friendly line.
  if (code === undefined) return error;
  const where = `${options.host} port ${String(options.port)}`;
  const reason = START_PROBLEMS[code] ?? (error instanceof Error ? error.message : code);
  const message = `cannot listen on ${where} (${code}): ${reason}`;
  return new CommandFailure(EXIT.refused, message, [], { code }, { cause: error });
}

export const serveCommand: Command = {
  name: "serve",
  summary: "run a server",
  usage: ["hapax serve [options]"],
  positionalsMin: 0,
  positionalsMax: 0,
  options: SERVE_OPTIONS,
  details: [
    "Prints `hapax listening on <url> (durability: …)` once it accepts requests. On SIGTERM or Ctrl-C it lets open",
    "requests finish and ends with exit code 0. A second signal ends it at once with 143 or 130.",
    "Notes and faults go to stderr, and so does an audit entry for each act such as the deletion of a stream, unless",
    "--audit-file names a file for them. --log-requests writes a line for each request.",
    "",
    "With --tls-cert and --tls-key it speaks HTTPS. The key file must be readable for its owner only (chmod 600). When the files",
    "change, new connections get the new certificate, and open connections go on.",
    "",
    "If there is a file of API keys (see: hapax help tokens), every request needs a key of it. HAPAX_SERVER_TOKEN is one token with",
    "all rights, for a container that has no file: at least 32 characters. It is no flag, because other users see flags.",
    "Without any credential the server lets every client in, says so, and listens on this machine only. --require-auth refuses to",
    "start then: set it where a missing file of keys would be a mistake.",
    "With --store the streams are in PostgreSQL, and one server at a time owns them. With --peers several servers share them, each",
    "owns a part and takes all requests: see the guide to more than one machine.",
    "",
    "With --jwt-jwks it also takes tokens (JWT) of an identity provider, with --signing-keys-file signed URLs. With any of these every",
    "request needs one of them.",
    "",
    "A flag wins over a variable, a variable over the configuration file, the file over the default. SIGHUP reads the file",
    "again and puts in force what needs no restart; `hapax config check` shows which options these are.",
  ],
  examples: [
    ["on this machine, port 4437", "hapax serve"],
    ["any free port, another directory", "hapax serve --port 0 --dir /var/lib/hapax"],
    ["nothing on disk", "hapax serve --memory"],
    [
      "in PostgreSQL, as the second server",
      "hapax serve --store postgres://hapax@db-a,db-b/hapax --takeover wait",
    ],
    [
      "a node of a cluster",
      "hapax serve --store postgres://hapax@db/hapax --node n1 --advertise http://n1:4437 --peers 0.0.0.0:4438 --peer-key-file key",
    ],
    ["the same by the environment", "HAPAX_PORT=8080 hapax serve"],
    ["HTTPS", "hapax serve --tls-cert cert.pem --tls-key key.pem"],
    [
      "tokens of an identity provider",
      "hapax serve --jwt-jwks https://login.example.com/jwks --jwt-issuer https://login.example.com/ --jwt-audience streams",
    ],
  ],
  run: runServe,
};
