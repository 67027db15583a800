/**
 * The kinds of values that options have. A kind knows all three spellings: the text of a flag or a variable, the JSON of the
 * file, and the JSON Schema. What a kind accepts in the file, its schema accepts too.
 */

import { isIP } from "node:net";
import { isAbsolute, join } from "node:path";

import { isOrigin, isPublicUrl } from "../protocol/origin.ts";
import { withoutLastSlashes } from "../protocol/slashes.ts";
import { isKeySetUrl } from "../streams/access/jwks-keeper.ts";
import { type Quotas, QUOTAS } from "../streams/access/identity.ts";

/** A value, or what of it is not valid as it was given. A list may have several wrong entries. */
export type Parsed<Value> = { readonly value: Value } | { readonly wrong: readonly unknown[] };

export interface OptionKind<Value> {
  /** What a flag or a variable may be, in words. */
  readonly allowed: string;
  /** What the file may have, in words. */
  readonly allowedInFile: string;
  readonly schema: Readonly<Record<string, unknown>>;
  /** One text for each time that the flag was given. */
  readonly parseTexts: (texts: readonly string[]) => Parsed<Value>;
  /** `directory`: where the file is, for paths that are relative to it. */
  readonly parseJson: (json: unknown, directory: string) => Parsed<Value>;
}

/** A whole number, both ends included. */
export function wholeNumber(min: number, max: number): OptionKind<number> {
  const allowed = `a whole number from ${String(min)} to ${String(max)}`;
  const isWithin = (value: unknown): value is number =>
    Number.isSafeInteger(value) && Number(value) >= min && Number(value) <= max;
  return {
    allowed,
    allowedInFile: allowed,
    schema: { type: "integer", minimum: min, maximum: max },
    parseTexts: ([text = ""]) => {
      const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
      return isWithin(value) ? { value } : { wrong: [text] };
    },
    parseJson: (json) => (isWithin(json) ? { value: json } : { wrong: [json] }),
  };
}

/** A number from 0 to 1. */
export const SHARE: OptionKind<number> = {
  allowed: "a number from 0 to 1",
  allowedInFile: "a number from 0 to 1",
  schema: { type: "number", minimum: 0, maximum: 1 },
  parseTexts: ([text = ""]) => {
    const value = /^(\d{1,9}(\.\d{0,9})?|\.\d{1,9})$/.test(text) ? Number(text) : Number.NaN;
    return value >= 0 && value <= 1 ? { value } : { wrong: [text] };
  },
  parseJson: (json) =>
    typeof json === "number" && json >= 0 && json <= 1 ? { value: json } : { wrong: [json] },
};

/** One of a few words. */
export function oneOf<Word extends string>(...words: readonly Word[]): OptionKind<Word> {
  const parse = (given: unknown): Parsed<Word> => {
    const value = words.find((word) => word === given);
    return value === undefined ? { wrong: [given] } : { value };
  };
  return {
    allowed: words.join(", "),
    allowedInFile: words.map((word) => JSON.stringify(word)).join(", "),
    schema: { enum: words },
    parseTexts: ([text]) => parse(text),
    parseJson: parse,
  };
}

/** On or off. `opposite`: the flag and the variable say that the member is false. */
export function toggle(sense: "same" | "opposite" = "same"): OptionKind<boolean> {
  const on = sense === "same";
  return {
    allowed: "1, true, 0, false",
    allowedInFile: "true, false",
    schema: { type: "boolean" },
    parseTexts: ([given = ""]) => {
      const text = given.toLowerCase();
      if (text === "1" || text === "true") return { value: on };
      if (text === "0" || text === "false") return { value: !on };
      return { wrong: [given] };
    },
    parseJson: (json) => (typeof json === "boolean" ? { value: json } : { wrong: [json] }),
  };
}

/** A text that `read` understands. */
function text(
  allowed: string,
  pattern: string,
  read: (given: string) => string | undefined,
): OptionKind<string> {
  const parse = (given: unknown): Parsed<string> => {
    const value = typeof given === "string" ? read(given) : undefined;
    return value === undefined ? { wrong: [given] } : { value };
  };
  return {
    allowed,
    allowedInFile: allowed,
    schema: { type: "string", pattern },
    parseTexts: ([given]) => parse(given),
    parseJson: parse,
  };
}

/** An address or a name to listen on. Brackets belong to URLs; here they can only mean the address inside. */
export const HOST = text("an IP address or a host name", String.raw`^\[?[\w.:%-]+\]?$`, (given) => {
  const host = given.replace(/^\[(.*)\]$/, "$1");
  const isName = /^[a-z\d]([a-z\d.-]{0,252})$/i.test(host);
  return isIP(host) === 0 && !isName ? undefined : host;
});

const URL_ALLOWED = "an http or https URL without password, query and fragment";

/** A base URL, without slashes at its end. */
export const HTTP_URL = text(URL_ALLOWED, "^[Hh][Tt][Tt][Pp][Ss]?://[^?#]+$", (given) =>
  isPublicUrl(given) ? withoutLastSlashes(new URL(given).href) : undefined,
);

/** The URL of a PostgreSQL. It may have several hosts, which no parser of URLs takes. */
export const DATABASE_URL = text(
  "a URL that begins with postgres://",
  "^postgres(ql)?://.+$",
  (given) => (/^postgres(ql)?:\/\/./.test(given) ? given : undefined),
);

/** A URL of a database without its password. */
export function withoutPassword(url: string): string {
  return url
    .replace(/^([a-z]+:\/\/[^:@/]*):[^@]*@/, "$1:…@")
    .replace(/([?&]password=)[^&]*/, "$1…");
}

/** A path on this machine. In the file it is relative to the directory of the file. */
export const PATH: OptionKind<string> = {
  ...text("a path", "^[^\\u0000]+$", (given) => asPath(given, ".")),
  parseTexts: ([given = ""]) => (isPath(given) ? { value: given } : { wrong: [given] }),
  parseJson: (json, directory) => {
    const value = typeof json === "string" ? asPath(json, directory) : undefined;
    return value === undefined ? { wrong: [json] } : { value };
  },
};

function isPath(given: string): boolean {
  return given !== "" && !given.includes("\0");
}

function asPath(given: string, directory: string): string | undefined {
  if (!isPath(given)) return undefined;
  return isAbsolute(given) || directory === "." ? given : join(directory, given);
}

/** A text of one line. */
export const TEXT = text("a text of 1 to 512 characters", "^[\\u0020-\\uffff]{1,512}$", (given) =>
  /^[^\p{Cc}]{1,512}$/u.test(given) ? given : undefined,
);

/** Several of them. A flag is one; a variable has commas between them. */
export const TEXTS: OptionKind<readonly string[]> = {
  allowed: "texts of 1 to 512 characters",
  allowedInFile: "a list of 1 to 20 texts of 1 to 512 characters",
  schema: { type: "array", minItems: 1, maxItems: 20, items: TEXT.schema },
  parseTexts: (texts) => {
    const several = texts.flatMap((one) => one.split(",")).map((one) => one.trim());
    return parseTextList(several);
  },
  parseJson: (json) => (Array.isArray(json) ? parseTextList(json) : { wrong: [json] }),
};

function parseTextList(list: readonly unknown[]): Parsed<readonly string[]> {
  const good = list.filter((one) => typeof one === "string" && "value" in TEXT.parseTexts([one]));
  if (good.length < list.length) return { wrong: list.filter((one) => !good.includes(one)) };
  const isFit = good.length > 0 && good.length <= 20;
  return isFit ? { value: good as readonly string[] } : { wrong: [list] }; // They are texts.
}

const isUrl = (given: string): boolean => /^[a-z][a-z\d+.-]*:\/\//i.test(given);
const KEY_SET_ALLOWED = "a path, or an https URL (http for this machine)";

/** Where a key set is: a path, or a URL. */
export const KEY_SET: OptionKind<string> = {
  allowed: KEY_SET_ALLOWED,
  allowedInFile: KEY_SET_ALLOWED,
  schema: PATH.schema,
  parseTexts: ([given = ""]) => {
    if (!isUrl(given)) return PATH.parseTexts([given]);
    return isKeySetUrl(given) ? { value: given } : { wrong: [given] };
  },
  parseJson: (json, directory) => {
    if (typeof json !== "string" || !isUrl(json)) return PATH.parseJson(json, directory);
    return isKeySetUrl(json) ? { value: json } : { wrong: [json] };
  },
};

const ORIGIN_ALLOWED = "an origin such as https://app.example.com, or * for every page";

function parseOrigins(origins: readonly unknown[]): Parsed<"*" | readonly string[]> {
  const isGood = (one: unknown): one is string =>
    typeof one === "string" && (one === "*" || isOrigin(one));
  const good = origins.filter(isGood);
  if (good.length < origins.length) return { wrong: origins.filter((one) => !isGood(one)) };
  return { value: good.includes("*") ? "*" : good };
}

/** Origins of web pages, or `*` for all of them. A text has commas between its origins. */
export const ORIGINS: OptionKind<"*" | readonly string[]> = {
  allowed: ORIGIN_ALLOWED,
  allowedInFile: `"*", or a list; in the list ${ORIGIN_ALLOWED}`,
  schema: {
    anyOf: [
      { const: "*" },
      {
        type: "array",
        items: {
          type: "string",
          pattern: String.raw`^(\*|[Hh][Tt][Tt][Pp][Ss]?://[^/?#@\s]+)$`,
        },
      },
    ],
  },
  parseTexts: (texts) =>
    parseOrigins(
      texts
        .flatMap((one) => one.split(","))
        .map((one) => one.trim())
        .filter((one) => one !== ""),
    ),
  parseJson: (json) => {
    if (json === "*") return { value: "*" };
    return Array.isArray(json) ? parseOrigins(json) : { wrong: [json] };
  },
};

const QUOTA_ALLOWED = `${QUOTAS.join(", ")}, each a whole number from 0`;

function parseQuotas(given: readonly (readonly [string, unknown])[]): Parsed<Quotas> {
  const isGood = ([name, value]: readonly [string, unknown]): boolean =>
    QUOTAS.some((one) => one === name) && Number.isSafeInteger(value) && Number(value) >= 0;
  const wrong = given.filter((one) => !isGood(one));
  if (wrong.length > 0) return { wrong: wrong.map(([name, value]) => ({ [name]: value })) };
  return { value: Object.fromEntries(given) };
}

/** A quota as a flag has it, such as `streamsMax=100`. Undefined: it is not of this form. */
export function parseQuotaText(text: string): readonly [name: string, limit: number] | undefined {
  const [, name, digits] = /^(\w+)=(\d{1,15})$/.exec(text) ?? [];
  return name === undefined ? undefined : [name, Number(digits)];
}

/** Quotas of identities. A text has `name=number`, with commas between. */
export const QUOTA_LIST: OptionKind<Quotas> = {
  allowed: `name=number with ${QUOTA_ALLOWED}`,
  allowedInFile: `an object with ${QUOTA_ALLOWED}`,
  schema: {
    type: "object",
    additionalProperties: false,
    properties: Object.fromEntries(
      QUOTAS.map((name) => [
        name,
        { type: "integer", minimum: 0, maximum: Number.MAX_SAFE_INTEGER },
      ]),
    ),
  },
  parseTexts: (texts) =>
    parseQuotas(
      texts
        .flatMap((one) => one.split(","))
        .map((one) => one.trim())
        .filter((one) => one !== "")
        .map((one) => parseQuotaText(one) ?? [one, Number.NaN]),
    ),
  parseJson: (json) => {
    if (typeof json !== "object" || json === null || Array.isArray(json)) return { wrong: [json] };
    return parseQuotas(Object.entries(json));
  },
};
