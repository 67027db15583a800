/**
 * Digests of what a request is for. Servers of different versions and with different parsers can compare them.
 *
 *   - fingerprints of different versions are not compared, so during an upgrade a repetition never counts as
 *     another request;
 *   - two bodies that were both seen as bytes are compared exactly. If a parser has read one of them, they are
 *     compared by what both sides know; if that is nothing, by method, target and type alone.
 *
 * `http-1:<head>:<plain>:<exact>`. `plain` is the body as every parser understands it. `exact` is what the bytes say
 * beyond that; `=` means no more, `?` unknown. A fingerprint that users give has another form, and is compared as
 * text. Pure.
 */

/** The parts of a fingerprint, as texts of digests. Undefined: unknown. */
export interface FingerprintParts {
  readonly head: string;
  readonly plain: string | undefined;
  /** The same as `plain` if the bytes say no more. */
  readonly exact: string | undefined;
}

const VERSION = 1;
const FORM = /^http-(\d+):([0-9a-f]+):([0-9a-f]+|\?):([0-9a-f]+|[=?])$/;

export function formatFingerprint({ head, plain, exact }: FingerprintParts): string {
  const last = exact === undefined ? "?" : exact === plain ? "=" : exact;
  return `http-${VERSION}:${head}:${plain ?? "?"}:${last}`;
}

/** Whether two fingerprints are of different content. A missing fingerprint differs from none. */
export function isOtherContent(one: string | undefined, other: string | undefined): boolean {
  if (one === undefined || other === undefined || one === other) return false;
  const [left, right] = [parse(one), parse(other)];
  if (left === undefined || right === undefined) return true;
  if (left.version !== right.version) return false;
  if (left.head !== right.head) return true;
  if (left.exact !== undefined && right.exact !== undefined) return left.exact !== right.exact;
  if (left.plain !== undefined && right.plain !== undefined) return left.plain !== right.plain;
  return false;
}

function parse(text: string): (FingerprintParts & { readonly version: string }) | undefined {
  const match = FORM.exec(text);
  if (match === null) return undefined;
  const [, version = "", head = "", known = "", more = ""] = match;
  const plain = known === "?" ? undefined : known;
  const exact = more === "?" ? undefined : more === "=" ? plain : more;
  return { version, head, plain, exact };
}
