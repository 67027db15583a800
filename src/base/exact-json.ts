/**
 * Writes JSON that reads back as the same value. It refuses a value that JSON would drop, empty or change, and names
 * its path.
 *
 * It leaves out members whose value is undefined, as JSON does: a reader gets undefined again. An object with a
 * `toJSON` decides how it is written. Pure.
 */

/** The JSON text of a value, or the path and kind of the part that JSON cannot keep. */
export type ExactJson =
  | { readonly text: string }
  | { readonly path: string; readonly problem: string };

/** One step of the way from an object up to the top. */
interface Step {
  readonly holder: object;
  readonly name: string;
}

/** A longer path does not help a reader. */
const PATH_STEPS_MAX = 50;

class Refused extends Error {
  readonly path: string;
  readonly problem: string;

  constructor(path: string, problem: string) {
    super(problem);
    this.path = path;
    this.problem = problem;
  }
}

/** Writes a value as JSON. `root` is the name of the value; paths begin with it. */
export function exactJson(value: unknown, root: string): ExactJson {
  const flat = flatJson(value);
  return flat === undefined ? checkedJson(value, root) : { text: flat.text };
}

/** The JSON text of a value, and what that reads back as. */
export interface FlatJson {
  readonly text: string;
  readonly copy: unknown;
}

/** Writes what most results are, an object with a few plain members, without a look at each by a function. Undefined: it is more. */
export function flatJson(value: unknown): FlatJson | undefined {
  if (typeof value !== "object" || value === null) {
    const text = plainJson(value);
    return text === undefined ? undefined : { text, copy: copyOf(value) };
  }
  if (Object.getPrototypeOf(value) !== Object.prototype) return undefined;
  const copy: Record<string, unknown> = {};
  let text = "";
  let count = 0;
  for (const name of Object.keys(value)) {
    // Read once: the next reading may differ. Cast: it has this member.
    const member = (value as Readonly<Record<string, unknown>>)[name];
    const json = plainJson(member);
    const quotedName = quoted(name);
    if (json === undefined || quotedName === undefined) return undefined;
    if (count === FLAT_MAX || name === "__proto__") return undefined;
    copy[name] = copyOf(member);
    text += `${count === 0 ? "{" : ","}${quotedName}:${json}`;
    count += 1;
  }
  return { text: count === 0 ? "{}" : `${text}}`, copy };
}

/** JSON has one zero. */
function copyOf(value: unknown): unknown {
  return value === 0 ? 0 : value;
}

/** Undefined: UTF-8 cannot encode it. */
function quoted(text: string): string | undefined {
  return hasHalfPair(text) ? undefined : JSON.stringify(text);
}

const FLAT_MAX = 8;

function plainJson(value: unknown): string | undefined {
  switch (typeof value) {
    case "string":
      return quoted(value);
    case "number":
      return Number.isFinite(value) ? String(value) : undefined;
    case "boolean":
      return value ? "true" : "false";
    default:
      return value === null ? "null" : undefined;
  }
}

function checkedJson(value: unknown, root: string): ExactJson {
  const steps = new Map<object, Step>();
  // JSON.stringify calls this with the holder as `this`.
  function check(this: unknown, name: string, member: unknown): unknown {
    // The holder of a member is an object, or a list.
    const holder = this as Readonly<Record<string, unknown>>;
    const problem = problemOf(holder, name, member);
    if (problem !== undefined) throw new Refused(pathOf(steps, holder, name, root), problem);
    if (typeof member === "object" && member !== null) steps.set(member, { holder, name });
    return member;
  }
  try {
    const text = JSON.stringify(value, check) as string | undefined;
    if (text === undefined) return { path: root, problem: "is undefined" };
    return { text };
  } catch (error) {
    if (error instanceof Refused) return { path: error.path, problem: error.problem };
    return { path: root, problem: `cannot be written as JSON (${wordsOf(error)})` };
  }
}

/** Whether a text has half of a surrogate pair, which UTF-8 cannot encode. */
export function hasHalfPair(text: string): boolean {
  return /\p{Surrogate}/u.test(text);
}

function problemOf(
  holder: Readonly<Record<string, unknown>>,
  name: string,
  member: unknown,
): string | undefined {
  if (hasHalfPair(name)) return "has a name with half of a surrogate pair";
  switch (typeof member) {
    case "string":
      return hasHalfPair(member) ? "has half of a surrogate pair" : undefined;
    case "number":
      return Number.isFinite(member) ? undefined : `is ${String(member)}`;
    case "undefined":
      return Array.isArray(holder) ? "is undefined, in a list" : undefined;
    case "boolean":
      return undefined;
    case "object":
      return member === null ? problemOfNull(holder[name]) : problemOfObject(member);
    default:
      return `is a ${typeof member}`;
  }
}

/** An invalid date becomes null. */
function problemOfNull(raw: unknown): string | undefined {
  return tagOf(raw) === "Date" ? "is an invalid Date" : undefined;
}

/** JSON does not see the content of a Map, a buffer, a Promise and the like. */
function problemOfObject(member: object): string | undefined {
  if (Array.isArray(member)) return undefined;
  const tag = tagOf(member);
  return KEPT_TAGS.has(tag) ? undefined : `is a ${tag}`;
}

function tagOf(value: unknown): string {
  return Object.prototype.toString.call(value).slice(8, -1);
}

/** JSON unpacks the last three. Classes of the user are objects here. */
const KEPT_TAGS: ReadonlySet<string> = new Set(["Object", "Number", "String", "Boolean"]);

function pathOf(
  steps: ReadonlyMap<object, Step>,
  holder: object,
  name: string,
  root: string,
): string {
  const parts: string[] = [];
  let at: Step | undefined = { holder, name };
  while (at !== undefined && parts.length < PATH_STEPS_MAX) {
    const above = steps.get(at.holder);
    // JSON.stringify makes the holder of the top; it is no part of the value.
    if (above === undefined) break;
    parts.push(partOf(at));
    at = above;
  }
  return `${root}${parts.toReversed().join("")}`;
}

function partOf({ holder, name }: Step): string {
  if (Array.isArray(holder)) return `[${name}]`;
  return /^[A-Za-z_$][\w$]*$/.test(name) ? `.${name}` : `[${JSON.stringify(name).slice(0, 100)}]`;
}

function wordsOf(error: unknown): string {
  try {
    return error instanceof Error ? error.message.split("\n", 1).join("") : String(error);
  } catch {
    return "it throws";
  }
}
