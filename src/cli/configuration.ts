/**
 * From flags, variables, the file and defaults to one configuration. A flag wins over a variable, a variable over the file,
 * the file over the default. Every problem is found before any is reported.
 */

import { dirname, join } from "node:path";

import { isLoopback } from "../protocol/origin.ts";
import {
  noCredentialText,
  SERVER_TOKEN_VARIABLE,
  TOKENS_FILE_NAME,
} from "../streams/access/key-document.ts";
import { nearest, quote } from "./arguments.ts";
import type { Invocation } from "./command.ts";
import { type ConfigFile, findConfigFile, readConfigFile } from "./config-file.ts";
import type { Context, ServeOptions } from "./context.ts";
import { usageFailure } from "./failure.ts";
import type { Parsed } from "./option-kinds.ts";
import { type OptionRow, SERVE_TABLE, type ServeConfiguration } from "./serve-options.ts";

export type OptionTable = Readonly<Record<string, OptionRow<unknown>>>;

/** One option of a configuration, and where its value is from. */
export interface Setting {
  readonly member: string;
  readonly row: OptionRow<unknown>;
  /** Undefined: the option is absent. */
  readonly value: unknown;
  readonly from: "flag" | "variable" | "file" | "default";
  /** How the person who gave it knows it: `--port`, `HAPAX_PORT`, `port in hapax.config.json`. */
  readonly name: string;
}

export interface Configuration {
  /** Undefined: there is no file. */
  readonly file: ConfigFile | undefined;
  /** One for each row of the table, in its order. */
  readonly settings: readonly Setting[];
}

export interface LoadedConfiguration extends Configuration {
  readonly options: ServeOptions;
}

interface Given {
  readonly from: Setting["from"];
  readonly name: string;
  readonly parsed: Parsed<unknown>;
  readonly allowed: string;
}

/** Reads the file that the command line names, or the usual one, and resolves everything. */
export async function loadConfiguration(
  invocation: Invocation,
  context: Context,
): Promise<LoadedConfiguration> {
  return resolveServe(invocation, context, await findConfigFile(invocation, context));
}

/** The same with the file at this path, which must exist. */
export async function loadFrom(
  invocation: Invocation,
  context: Context,
  path: string,
): Promise<LoadedConfiguration> {
  return resolveServe(invocation, context, await readConfigFile(path, context));
}

async function resolveServe(
  invocation: Invocation,
  context: Context,
  file: ConfigFile | undefined,
): Promise<LoadedConfiguration> {
  const problems: string[] = [];
  const settings = resolveTable(SERVE_TABLE, invocation, context.env, file, problems);
  const given = new Map(settings.map((setting) => [setting.member, setting]));
  checkPlace(given, problems);
  checkCluster(given, problems);
  checkTls(given, problems);
  checkJwt(given, problems);
  if (context.env[SERVER_TOKEN_VARIABLE] === "") problems.push(EMPTY_TOKEN);
  if (problems.length === 0 && !(await hasAuthentication(optionsOf(settings), context))) {
    checkReach(given, problems);
    checkRequired(given, optionsOf(settings), problems);
  }
  if (problems.length > 0) {
    const first = problems.length === 1 ? "an option is" : `${String(problems.length)} options are`;
    throw usageFailure(`${first} not valid`, problems);
  }
  return { file, settings, options: optionsOf(settings) };
}

/** Where `serve` would keep things with the same flags, variables and file. Nothing else is checked across options. */
export async function loadPlaces(
  invocation: Invocation,
  context: Context,
): Promise<Pick<ServeOptions, "dir" | "tokensFile">> {
  const file = await findConfigFile(invocation, context);
  const problems: string[] = [];
  const settings = resolveTable(SERVE_TABLE, invocation, context.env, file, problems);
  if (problems.length > 0) throw usageFailure("the configuration is not valid", problems);
  return optionsOf(settings);
}

/** Resolves every row. What is not valid is a problem, and gets its default meanwhile. */
export function resolveTable(
  table: OptionTable,
  invocation: Pick<Invocation, "values">,
  env: Context["env"],
  file: ConfigFile | undefined,
  problems: string[],
): readonly Setting[] {
  for (const member of file?.members.keys() ?? []) {
    if (Object.hasOwn(table, member) || member === "$schema") continue;
    problems.push(unknownMember(table, `${quote(member)} in ${file?.path ?? ""}`, member));
  }
  return Object.entries(table).map(([member, row]) => {
    const absent: Setting = {
      member,
      row,
      value: row.fallback,
      from: "default",
      name: `--${row.flag}`,
    };
    const given = find(member, row, invocation, env, file);
    if (given === undefined) return absent;
    const { from, name, parsed, allowed } = given;
    if ("value" in parsed) return { member, row, value: parsed.value, from, name };
    for (const wrong of parsed.wrong) {
      const shown = row.isSecret === true ? "not valid" : JSON.stringify(shownValue(row, wrong));
      problems.push(`${name} is ${shown}; allowed: ${allowed}`);
    }
    return absent;
  });
}

function find(
  member: string,
  row: OptionRow<unknown>,
  invocation: Pick<Invocation, "values">,
  env: Context["env"],
  file: ConfigFile | undefined,
): Given | undefined {
  const { kind, flag } = row;
  const { allowed, allowedInFile } = kind;
  const flags = invocation.values(flag);
  if (flags.length > 0) {
    return { from: "flag", name: `--${flag}`, parsed: kind.parseTexts(flags), allowed };
  }
  // An empty variable counts as absent, as in most tools: `HAPAX_DIR= hapax serve`.
  const text = env[row.env] ?? "";
  if (text !== "") {
    return { from: "variable", name: row.env, parsed: kind.parseTexts([text]), allowed };
  }
  if (file === undefined || !file.members.has(member)) return undefined;
  const parsed = kind.parseJson(file.members.get(member), dirname(file.path));
  return { from: "file", name: `${member} in ${file.path}`, parsed, allowed: allowedInFile };
}

/** A person may also have written the name of the flag. */
function unknownMember(table: OptionTable, where: string, member: string): string {
  const plain = (name: string): string =>
    name.replace(/^--/, "").replaceAll(/[-_]/g, "").toLowerCase();
  const same = Object.entries(table).find(([name, { flag, env }]) =>
    [name, flag, env].some((known) => plain(known) === plain(member)),
  );
  const near = same?.[0] ?? nearest(member, Object.keys(table));
  return `${where} is no option${near === undefined ? "; see: hapax config schema" : `; did you mean ${quote(near)}?`}`;
}

/** Data in memory is gone with the process, so that no source may overrule another about it. */
function checkPlace(given: ReadonlyMap<string, Setting>, problems: string[]): void {
  const [dir, memory] = [given.get("dir"), given.get("memory")];
  const store = given.get("store");
  if (memory?.value === true && dir !== undefined && dir.from !== "default") {
    problems.push(`${dir.name} and ${memory.name} exclude each other`);
  }
  const durability = given.get("durability");
  if (store?.value === undefined) {
    if (durability?.value === "replicated")
      problems.push(`${durability.name} replicated needs --store`);
    return;
  }
  for (const other of [dir, memory]) {
    const isGiven = other !== undefined && other.from !== "default" && other.value !== false;
    if (isGiven) problems.push(`${other.name} and ${store.name} exclude each other`);
  }
}

/** A node of a cluster has a database, a name, and the secret of the others. */
function checkCluster(given: ReadonlyMap<string, Setting>, problems: string[]): void {
  const peers = given.get("peers");
  const needs = ["store", "node", "peerKeyFile"].map((member) => given.get(member));
  if (peers?.value !== undefined) {
    for (const need of needs) {
      if (need?.value === undefined)
        problems.push(`${peers.name} needs --${need?.row.flag ?? ""} as well`);
    }
    return;
  }
  for (const other of ["peerKeyFile", "advertise"].map((member) => given.get(member))) {
    if (other?.value !== undefined) problems.push(`${other.name} needs --peers as well`);
  }
}

/** The server checks the files themselves. */
function checkTls(given: ReadonlyMap<string, Setting>, problems: string[]): void {
  const [cert, key, clientCa] = ["tlsCert", "tlsKey", "tlsClientCa"].map((member) => {
    const setting = given.get(member);
    return setting?.value === undefined ? undefined : setting;
  });
  if (cert !== undefined && key !== undefined) return;
  const lonely = cert ?? key ?? clientCa;
  if (lonely === undefined) return;
  problems.push(`${lonely.name} needs ${cert === undefined ? "--tls-cert" : "--tls-key"} as well`);
}

/** One of the three alone would let every token in, or none. */
function checkJwt(given: ReadonlyMap<string, Setting>, problems: string[]): void {
  const settings = ["jwtJwks", "jwtIssuer", "jwtAudience"].map((member) => given.get(member));
  const present = settings.find((setting) => setting?.value !== undefined);
  if (present === undefined) return;
  for (const setting of settings) {
    if (setting === undefined || setting.value !== undefined) continue;
    problems.push(`${present.name} needs --${setting.row.flag} as well`);
  }
}

/** Whether `serve` would demand a token. The server checks the file itself. */
async function hasAuthentication(
  { dir, tokensFile, jwtJwks, signingKeysFile }: ServeOptions,
  { env, keyFiles }: Context,
): Promise<boolean> {
  if ([tokensFile, jwtJwks, signingKeysFile].some((one) => one !== undefined)) return true;
  if (env[SERVER_TOKEN_VARIABLE] !== undefined) return true;
  if (dir === undefined) return false;
  const path = join(dir, TOKENS_FILE_NAME);
  return keyFiles.read(path).then(
    (keys) => keys !== undefined,
    () => true, // There is a file, and the server says what is wrong with it.
  );
}

function checkReach(given: ReadonlyMap<string, Setting>, problems: string[]): void {
  const host = given.get("host");
  const address = String(host?.value);
  if (isLoopback(address) || given.get("insecurePublic")?.value === true) return;
  problems.push(
    `${host?.name ?? "--host"} is ${quote(address)}; allowed: a loopback address such as 127.0.0.1, because there ` +
      "is no authentication and every client that reaches this address can read, write and delete. " +
      "Make a key with hapax tokens create, or add --insecure-public if you trust the whole network",
  );
}

/** Unlike other variables: a secret that could not be read leaves an empty one, and the server would be open. */
const EMPTY_TOKEN = `${SERVER_TOKEN_VARIABLE} is set and empty; set it to a token (openssl rand -hex 32 makes one), or unset it`;

function checkRequired(
  given: ReadonlyMap<string, Setting>,
  { dir }: ServeOptions,
  problems: string[],
): void {
  const setting = given.get("requireAuth");
  if (setting?.value !== true) return;
  const path = dir === undefined ? undefined : join(dir, TOKENS_FILE_NAME);
  problems.push(`${setting.name}: ${noCredentialText(path)}`);
}

function optionsOf(settings: readonly Setting[]): ServeOptions {
  const present = settings.filter(({ value }) => value !== undefined);
  // The type of the table holds each value to the type of its member.
  const all = Object.fromEntries(
    present.map(({ member, value }) => [member, value]),
  ) as Partial<ServeConfiguration> as ServeConfiguration;
  const { memory, dir, tlsCert, tlsKey, tlsClientCa, ...options } = all;
  const place = "store" in all ? inDatabase(settings) : memory ? {} : { dir };
  if (!("tlsCert" in all)) return { ...options, ...place };
  const authorities = "tlsClientCa" in all ? { clientCaFile: tlsClientCa } : {};
  return { ...options, ...place, tls: { certFile: tlsCert, keyFile: tlsKey, ...authorities } };
}

/** In a database the default is the strongest promise: a server that is enough for less must be named so. */
function inDatabase(settings: readonly Setting[]): Partial<ServeOptions> {
  const given = settings.find(({ member }) => member === "durability");
  return given?.from === "default" ? { durability: "replicated" } : {};
}

/** A value for people. A secret stays one. */
export function showValue({ row, value, member }: Setting, settings: readonly Setting[]): string {
  if (row.isSecret === true && value !== undefined) return "(secret)";
  const isElsewhere = settings.some(
    (one) =>
      (one.member === "memory" && one.value === true) ||
      (one.member === "store" && one.value !== undefined),
  );
  if (value === undefined || (member === "dir" && isElsewhere)) return "(none)";
  const shown = shownValue(row, value);
  return typeof shown === "string" ? shown : JSON.stringify(shown);
}

/** A value without the part of it that may be a secret. */
export function shownValue({ show }: OptionRow<unknown>, value: unknown): unknown {
  return show === undefined || typeof value !== "string" ? value : show(value);
}
