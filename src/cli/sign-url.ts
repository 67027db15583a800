/** `hapax sign-url`: a URL that allows one action on one stream for a short time. PROTOCOL.md §21.7. */

import { systemClock } from "../base/clock.ts";
import { isHapaxError } from "../base/errors.ts";
import { signUrl } from "../streams/access/signed-url.ts";
import { parseUrlKeys } from "../streams/access/url-keys.ts";
import { quote } from "./arguments.ts";
import type { Command, Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { EXIT, usageFailure } from "./failure.ts";
import { encodePath, resolveEncoded, streamPath } from "./target.ts";

const UNIT_MS = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

async function runSignUrl(invocation: Invocation, context: Context): Promise<number> {
  const expiresAtMs = context.nowMs() + lifeMs(invocation.value("expires"));
  const action = invocation.value("action") ?? "read";
  if (action !== "read" && action !== "append") {
    throw usageFailure(`--action is ${quote(action)}; allowed: read, append`);
  }
  const key = await firstKey(invocation, context);
  const [fromOffset, name] = [invocation.value("from-offset"), invocation.value("name")];
  const producer = invocation.value("producer");
  const argument = invocation.positionals[0] ?? "";
  const isUrl = /^https?:\/\//i.test(argument);
  const signed = await signUrl(isUrl ? argument : encodePath(streamPath(argument)), {
    key,
    action,
    expiresAtMs,
    clock: { ...systemClock, nowMs: () => context.nowMs() },
    ...(fromOffset === undefined ? {} : { fromOffset }),
    ...(name === undefined ? {} : { name }),
    ...(producer === undefined ? {} : { producer }),
  }).catch((error: unknown) => {
    if (isHapaxError(error, "invalid_options")) throw usageFailure(error.message);
    throw error;
  });
  // The path of --url belongs to a proxy, which removes it: it is not signed.
  const url = isUrl ? signed : resolveEncoded(invocation, context, signed, argument).url;
  const expiresAt = new Date(Math.floor(expiresAtMs / 1000) * 1000).toISOString();
  const line = invocation.has("json") ? JSON.stringify({ url, expiresAt }) : url;
  await context.stdout.write(`${line}\n`);
  return EXIT.done;
}

function lifeMs(text: string | undefined): number {
  const [, count, unit] = /^([1-9]\d{0,5})([smhd])$/.exec(text ?? "") ?? [];
  if (count === undefined || unit === undefined) {
    const given = text === undefined ? "is missing" : `is ${quote(text)}`;
    throw usageFailure(`--expires ${given}; allowed: a time such as 30s, 10m, 6h or 7d`);
  }
  return Number(count) * UNIT_MS[unit as keyof typeof UNIT_MS]; // The pattern has only these.
}

async function firstKey(invocation: Invocation, context: Context) {
  const path =
    invocation.value("signing-keys-file") ?? context.env["HAPAX_SIGNING_KEYS_FILE"] ?? "";
  if (path === "")
    throw usageFailure("--signing-keys-file is missing", ["the server has the same file"]);
  try {
    const [first] = parseUrlKeys(await context.readSecretFile(path));
    return first;
  } catch (error) {
    const reason = error instanceof Error ? error.message : "it cannot be read";
    throw usageFailure(`--signing-keys-file is ${quote(path)}: ${reason}`);
  }
}

export const signUrlCommand: Command = {
  name: "sign-url",
  summary: "make a URL that reads or appends without a token",
  usage: ["hapax sign-url <stream> --expires <time> [options]"],
  positionalsMin: 1,
  positionalsMax: 1,
  options: [
    { name: "expires", value: "time", help: "how long the URL is valid: 30s, 10m, 6h, at most 7d" },
    { name: "action", value: "read|append", help: "what it allows (default read)" },
    { name: "from-offset", value: "offset", help: "it reads nothing before this offset" },
    { name: "name", value: "text", help: "who uses it, for logs: letters, digits and ._~@-" },
    {
      name: "producer",
      value: "id",
      help: "with --action append: appends may carry this producer id and no other",
    },
    {
      name: "signing-keys-file",
      value: "file",
      env: "HAPAX_SIGNING_KEYS_FILE",
      help: "the keys of the server; the first one signs",
    },
    {
      name: "url",
      value: "url",
      env: "HAPAX_URL",
      help: "the server (default http://127.0.0.1:4437)",
    },
  ],
  details: [
    "Prints the URL. It needs the file of keys and no server. Anyone who has the URL may use it: treat it as a token.",
    "A browser's EventSource can follow it, and resumes where it was. A URL cannot be taken back; remove its key from the file to end",
    "all URLs of that key.",
  ],
  examples: [
    ["a link for ten minutes", "hapax sign-url orders --expires 10m --signing-keys-file keys.json"],
    [
      "for EventSource",
      "hapax sign-url 'https://streams.example.com/v1/stream/orders?offset=-1&live=sse' --expires 1h --signing-keys-file keys.json",
    ],
  ],
  run: runSignUrl,
};
