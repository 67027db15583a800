/** The URL of a request: always below the server that the page came from. Pure. */

/** A path such as `/v1/stream/orders`, or its segments, which may have slashes themselves. Encoded here. */
export type PathLike = string | readonly string[];

const HALF_PAIR = /\p{Surrogate}/u;

/**
 * Returns the URL of a path below `base`. Undefined: no URL can name it. A URL drops the segments `.` and `..`, so a request would
 * go elsewhere, and half of a surrogate pair has no bytes.
 */
export function addressOf(
  base: URL,
  path: PathLike,
  query: Readonly<Record<string, string | undefined>> = {},
): URL | undefined {
  const segments = typeof path === "string" ? path.slice(1).split("/") : path;
  const isNamed = segments.every((part) => part !== "." && part !== ".." && !HALF_PAIR.test(part));
  if (!isNamed) return undefined;
  // With `./` an empty first segment stays one: `//evil.example` would be another server.
  const url = new URL(`./${segments.map(encodeURIComponent).join("/")}`, base);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) url.searchParams.set(name, value);
  }
  return url;
}
