/** `hapax groups`: what groups there are, how far they have come, and how one is made, moved and deleted. PROTOCOL.md §20. */

import { nearest, quote } from "./arguments.ts";
import { CLIENT_OPTIONS, type Command, type Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT, usageFailure } from "./failure.ts";
import { type CliAnswer, send, sendAct } from "./http.ts";
import { type ListEntry, extensionRefusal, jsonLines, readEntry, readPages } from "./listing.ts";
import { resolveEncoded, resolvePath, streamPath, type Target } from "./target.ts";
import { tell } from "./tell.ts";
import { countOf, createPaint, formatPairs, formatTable, printable } from "./terminal.ts";

const GROUPS_PATH = "/_hapax/groups";
const JSON_HEADERS = { "content-type": "application/json" };

type Action = (invocation: Invocation, context: Context, group: string) => Promise<number>;

const ACTIONS: ReadonlyMap<string, Action> = new Map([
  ["show", show],
  ["create", create],
  ["reset", reset],
  ["delete", remove],
]);

/** The options that belong to one action only. */
const OPTIONS_OF: Readonly<Record<string, readonly string[]>> = {
  pattern: ["create"],
  start: ["create"],
  "lease-ms": ["create"],
  stream: ["create", "reset"],
  to: ["reset"],
  yes: ["reset", "delete"],
};

async function runGroups(invocation: Invocation, context: Context): Promise<number> {
  const [action = "list", group] = invocation.positionals;
  for (const [option, actions] of Object.entries(OPTIONS_OF)) {
    if (invocation.has(option) && !actions.includes(action)) {
      throw usageFailure(`--${option} is for groups ${actions.join(" and ")}`);
    }
  }
  if (action === "list") {
    if (group !== undefined) throw usageFailure(`groups list does not take ${quote(group)}`);
    return list(invocation, context);
  }
  const run = ACTIONS.get(action);
  if (run === undefined) {
    const names = ["list", ...ACTIONS.keys()];
    const near = nearest(action, names);
    const advice = near === undefined ? `actions: ${names.join(", ")}` : `did you mean ${near}?`;
    throw usageFailure(`unknown action ${quote(action)} of groups`, [advice]);
  }
  if (group === undefined || group === "") {
    throw usageFailure(`groups ${action} needs <group>`, [`usage: hapax groups ${action} <group>`]);
  }
  return run(invocation, context, group);
}

function targetOf(invocation: Invocation, context: Context, group: string, act = ""): Target {
  // Every URL parser takes such a segment for a step up, also in its encoded form.
  if (group === "." || group === "..") throw usageFailure(`no URL can name the group ${group}`);
  const route = `${GROUPS_PATH}/${encodeURIComponent(group)}${act}`;
  return resolveEncoded(invocation, context, route, `group ${group}`);
}

async function list(invocation: Invocation, context: Context): Promise<number> {
  const target = resolvePath(invocation, context, GROUPS_PATH);
  const groups: ListEntry[] = [];
  for await (const page of readPages(context, target, "groups", {})) {
    if (invocation.has("json")) await context.stdout.write(jsonLines(page));
    else groups.push(...page);
  }
  if (invocation.has("json")) return EXIT.done;
  if (groups.length === 0) {
    await context.stderr.write("no groups\n");
    return EXIT.done;
  }
  const rows = groups.map((group) => [
    group.text("group"),
    numberOf(group, "members"),
    numberOf(group, "streams"),
    numberOf(group, "lag"),
  ]);
  const header = ["GROUP", "MEMBERS", "STREAMS", "LAG"];
  await context.stdout.write(formatTable(header, rows, createPaint(context.stdout, context.env)));
  if (context.stderr.isTerminal) {
    await context.stderr.write(`${countOf(groups.length, "group")}\n`);
  }
  return EXIT.done;
}

function numberOf(entry: ListEntry, name: string): string {
  return String(entry.number(name) ?? "");
}

async function show(invocation: Invocation, context: Context, group: string): Promise<number> {
  const target = targetOf(invocation, context, group);
  const answer = await send(context, { target, method: "GET", query: { limit: "1" } });
  if (answer.status !== 200) throw extensionRefusal(target, answer);
  const entry = readEntry(target, answer);
  const cursors: ListEntry[] = [];
  for await (const page of readPages(context, target, "cursors", {})) cursors.push(...page);
  if (invocation.has("json")) {
    const { next: _, ...raw } = entry.raw as Readonly<Record<string, unknown>>;
    const line = JSON.stringify({ ...raw, cursors: cursors.map((cursor) => cursor.raw) });
    await context.stdout.write(`${line}\n`);
    return EXIT.done;
  }
  const paint = createPaint(context.stdout, context.env);
  await context.stdout.write(formatPairs(pairsOf(entry), paint));
  if (cursors.length === 0) return EXIT.done;
  const header = ["STREAM", "OFFSET", "LAG", "TOKEN", "MEMBER", "STATE"];
  const table = formatTable(header, cursors.map(rowOf), paint);
  await context.stdout.write(`\n${table}`);
  return EXIT.done;
}

function pairsOf(entry: ListEntry): readonly (readonly [string, string])[] {
  const fields = new Map<string, unknown>(Object.entries(entry.raw ?? {}));
  const list = (name: string): readonly unknown[] => {
    const value = fields.get(name);
    return Array.isArray(value) ? (value as readonly unknown[]) : [];
  };
  const pairs: [string, string][] = [["group", entry.text("group")]];
  if (entry.text("pattern") !== "") pairs.push(["pattern", entry.text("pattern")]);
  const named = list("streams").map(String);
  if (named.length > 0) pairs.push(["streams", named.join(", ")]);
  pairs.push(
    ["start", entry.text("start")],
    ["lease", `${numberOf(entry, "leaseMs")} ms`],
    ["created", entry.text("createdAt")],
    ["members", String(list("members").length)],
  );
  return pairs;
}

function rowOf(cursor: ListEntry): readonly string[] {
  const isHeld = cursor.text("member") !== "";
  const held = cursor.isTrue("handOver") ? "handing over" : "leased";
  return [
    cursor.text("stream"),
    cursor.text("offset"),
    numberOf(cursor, "lag"),
    numberOf(cursor, "token"),
    cursor.text("member"),
    cursor.isTrue("finished") ? "finished" : isHeld ? held : "free",
  ];
}

async function create(invocation: Invocation, context: Context, group: string): Promise<number> {
  const pattern = invocation.value("pattern");
  const streams = invocation.values("stream").map(streamPath);
  if (pattern === undefined && streams.length === 0) {
    throw usageFailure("groups create needs --pattern or --stream");
  }
  const leaseMs = invocation.value("lease-ms");
  if (leaseMs !== undefined && !/^\d{1,9}$/.test(leaseMs)) {
    throw usageFailure(`--lease-ms is ${quote(leaseMs)}; allowed: a whole number`);
  }
  const target = targetOf(invocation, context, group);
  const answer = await sendJson(context, target, "PUT", {
    pattern: pattern === undefined ? undefined : streamPath(pattern),
    streams,
    start: invocation.value("start"),
    leaseMs: leaseMs === undefined ? undefined : Number(leaseMs),
  });
  if (answer.status !== 200 && answer.status !== 201) throw extensionRefusal(target, answer);
  const verb = answer.status === 201 ? "created" : "exists";
  await tell(invocation, context, { group, created: verb === "created" }, verb, `group ${group}`);
  return EXIT.done;
}

function sendJson(
  context: Context,
  target: Target,
  method: "PUT",
  value: unknown,
): Promise<CliAnswer> {
  const body = new TextEncoder().encode(JSON.stringify(value));
  return send(context, { target, method, headers: JSON_HEADERS, body });
}

async function reset(invocation: Invocation, context: Context, group: string): Promise<number> {
  const to = invocation.value("to");
  if (to === undefined) {
    throw usageFailure("groups reset needs --to", ["--to is beginning, tail or an offset"]);
  }
  const [given, ...more] = invocation.values("stream");
  if (more.length > 0) throw usageFailure("groups reset takes one --stream, or all without it");
  const stream = given === undefined ? undefined : streamPath(given);
  const target = targetOf(invocation, context, group, "/reset");
  const what = `${stream ?? "all streams"} of group ${group}`;
  await confirm(invocation, context, [`Move ${what} to ${to}?`, ...RESET_RULE], "not reset");
  const body = new TextEncoder().encode(JSON.stringify({ stream, to }));
  const call = { target, method: "POST", headers: JSON_HEADERS, body } as const;
  const answer = await sendAct(context, call);
  if (answer.status !== 200) throw extensionRefusal(target, answer);
  const streams = readEntry(target, answer).number("streams") ?? 0;
  const text = `${countOf(streams, "stream")} of group ${group} to ${to}`;
  await tell(invocation, context, { group, reset: true, streams, to }, "reset", text);
  return EXIT.done;
}

const RESET_RULE = [
  "Their leases end. If the offsets go back, the group processes the records in between again. If they go forward,",
  "the group skips the records in between.",
];

async function remove(invocation: Invocation, context: Context, group: string): Promise<number> {
  const target = targetOf(invocation, context, group);
  const question = [`Delete group ${group} with all its offsets? This cannot be undone.`];
  await confirm(invocation, context, question, "not deleted");
  const answer = await sendAct(context, { target, method: "DELETE" });
  if (answer.status !== 200 && answer.status !== 204) throw extensionRefusal(target, answer);
  await tell(invocation, context, { group, deleted: true }, "deleted", `group ${group}`);
  return EXIT.done;
}

/** A script has decided already; a person at a terminal may not know the rule. */
async function confirm(
  invocation: Invocation,
  context: Context,
  lines: readonly string[],
  refused: string,
): Promise<void> {
  if (!context.stdin.isTerminal || !context.stderr.isTerminal || invocation.has("yes")) return;
  const question = printable(`${lines.join("\n")}\nGo on? [y/N] `);
  const answer = (await context.ask(question)).trim().toLowerCase();
  if (answer !== "y" && answer !== "yes") throw new CommandFailure(EXIT.refused, refused);
}

export const groupsCommand: Command = {
  name: "groups",
  summary: "list, show, create and delete groups, and move their offsets",
  usage: [
    "hapax groups [list] [options]",
    "hapax groups show <group> [options]",
    "hapax groups create <group> --pattern <pattern> | --stream <stream> [options]",
    "hapax groups reset <group> --to <offset> [--stream <stream>] [options]",
    "hapax groups delete <group> [options]",
  ],
  positionalsMin: 0,
  positionalsMax: 2,
  options: [
    { name: "pattern", value: "pattern", help: "create: streams that match, such as orders/*" },
    {
      name: "stream",
      value: "stream",
      isRepeatable: true,
      help: "create: a stream of the group, may be repeated; reset: move only this one",
    },
    { name: "start", value: "offset", help: "create: beginning (the default), tail, or an offset" },
    {
      name: "lease-ms",
      value: "ms",
      help: "create: how long a member counts as live without a call",
    },
    { name: "to", value: "offset", help: "reset: beginning, tail, or an offset" },
    { name: "yes", short: "y", help: "reset, delete: do not ask" },
    ...CLIENT_OPTIONS,
  ],
  details: [
    "LAG is in bytes: data that is stored and not committed yet. A reset moves offsets, also back, and ends the",
    "leases of the streams. The group processes the records in between again, or skips them. Reset and delete ask",
    "first at a terminal. The server writes both to its audit log.",
  ],
  examples: [
    ["how far are they?", "hapax groups"],
    ["who works on what?", "hapax groups show billing"],
    ["all streams below orders/", "hapax groups create billing --pattern 'orders/*'"],
    ["process everything again", "hapax groups reset billing --to beginning"],
  ],
  run: runGroups,
};
