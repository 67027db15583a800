/**
 * JSON that comes back as it went: a value that JSON would drop, empty or change is refused, with the path to it.
 *
 * Members whose value is undefined are left out, as everywhere: who reads them gets undefined again. An object with a
 * `toJSON` says itself how it is written. Pure.
 */

/** The JSON text of a value; or where in the value something is that JSON cannot keep, and what. */
export type ExactJson =
  | { readonly text: string }
  | { readonly path: string; readonly problem: string };

/** The way from the top to an object, told backwards. */
interface Step {
  readonly holder: object;
  readonly name: string;
}

/** Beyond it a path says nothing to a reader. */
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

/** `root` is how a path begins: what the caller calls the value. */
export function exactJson(value: unknown, root: string): ExactJson {
  const steps = new Map<object, Step>();
  // JSON.stringify calls it with the holder as `this`.
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

/** Whether a text has half of a surrogate pair, which no UTF-8 can say. */
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

/** An invalid date says null of itself. */
function problemOfNull(raw: unknown): string | undefined {
  return tagOf(raw) === "Date" ? "is an invalid Date" : undefined;
}

/** A Map, a buffer, a Promise and the like have their content where JSON does not look. */
function problemOfObject(member: object): string | undefined {
  if (Array.isArray(member)) return undefined;
  const tag = tagOf(member);
  return KEPT_TAGS.has(tag) ? undefined : `is a ${tag}`;
}

function tagOf(value: unknown): string {
  return Object.prototype.toString.call(value).slice(8, -1);
}

/** The last three are unpacked. Classes of the user are objects to this. */
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
    // The holder of the top is made by JSON.stringify, and is no part of the value.
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
