/** What of a request's target may be written down. PROTOCOL.md §22.3. */

/** Members of a query that say where a read begins and how it goes on. All others may be secrets, such as those of a signed URL. */
const HARMLESS = new Set(["offset", "live", "cursor", "limit", "after", "prefix"]);
const TEXT_CHARACTERS_MAX = 1024;

/** The query with stars for each member that may be a secret. Names can be secrets too: `?token` has no value. */
export function redactQuery(query: string): string {
  const members = query.split("&").map((member) => {
    const [name = ""] = member.split("=", 1);
    return HARMLESS.has(name) ? member : "***";
  });
  return shorten(members.join("&"));
}

export function shorten(text: string): string {
  return text.length <= TEXT_CHARACTERS_MAX ? text : `${text.slice(0, TEXT_CHARACTERS_MAX)}...`;
}
