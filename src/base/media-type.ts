/** Returns the media type of a content type, without its parameters and in lower case. Two content types are compared by it. */
export function mediaType(contentType: string): string {
  const end = contentType.indexOf(";");
  return (end === -1 ? contentType : contentType.slice(0, end)).trim().toLowerCase();
}
