/**
 * Sends every request of a suite to a random node of a cluster, and not to the one that its URL names.
 *
 * A part of the published suite forks streams to names of another placement, or wakes by a stream of another one, which a cluster
 * refuses by name. For those tests all names get one tag, on their way there and back; nothing else is changed.
 */

const ROOT = "/v1/stream/";
const RESERVED = "__ds/";
/** The tests that need one placement. */
const NEEDS_TAG = /Fork - |pull-wake claim/;

let tags = 0;

export interface AnyNode {
  /** Begins a test. */
  begin(title: string): void;
  restore(): void;
  readonly requests: ReadonlyMap<string, number>;
}

/** Replaces `fetch`. `publicUrl`: what the suite takes for the server. */
export function sendToAnyNode(publicUrl: string, urls: readonly string[]): AnyNode {
  const real = globalThis.fetch;
  const requests = new Map<string, number>();
  let tag = "";
  globalThis.fetch = async (input, init) => {
    const asked = input instanceof Request ? input.url : String(input);
    if (!asked.startsWith(publicUrl)) return real(input, init);
    const url = urls[Math.floor(Math.random() * urls.length)] ?? publicUrl;
    requests.set(url, (requests.get(url) ?? 0) + 1);
    const target = asked.slice(publicUrl.length);
    if (input instanceof Request) return real(new Request(url + target, input), init);
    if (tag === "") return real(url + target, init);
    return untagged(await real(url + tagged(target, tag), taggedInit(init, tag)), tag);
  };
  return {
    requests,
    begin(title) {
      tags += 1;
      tag = NEEDS_TAG.test(title) ? `{t${tags}}` : "";
    },
    restore() {
      globalThis.fetch = real;
    },
  };
}

function tagged(path: string, tag: string): string {
  if (!path.startsWith(ROOT) || path.startsWith(ROOT + RESERVED)) return path;
  return ROOT + encodeURIComponent(tag) + path.slice(ROOT.length);
}

function taggedInit(init: RequestInit | undefined, tag: string): RequestInit | undefined {
  if (init === undefined) return init;
  const headers = new Headers(init.headers);
  const source = headers.get("stream-forked-from");
  if (source !== null) headers.set("stream-forked-from", tagged(source, tag));
  const { body } = init;
  // Of subscriptions: paths relative to the root.
  const isOfNames =
    typeof body === "string" && /"(pattern|wake_stream|path|streams|acks)"/.test(body);
  const next = isOfNames ? body.replaceAll(/"((?:events|wake|manual)\/)/g, `"${tag}$1`) : body;
  return { ...init, headers, ...(next === undefined ? {} : { body: next }) };
}

/** Answers that are not events, without the tag. */
async function untagged(answer: Response, tag: string): Promise<Response> {
  const headers = new Headers(answer.headers);
  const place = headers.get("location");
  if (place !== null) headers.set("location", place.replace(encodeURIComponent(tag), ""));
  const type = headers.get("content-type") ?? "";
  const { status, statusText } = answer;
  if (!type.includes("json") || answer.body === null || status === 204 || status === 304) {
    if (place === null) return answer;
    return new Response(answer.body, { status, statusText, headers });
  }
  headers.delete("content-encoding");
  headers.delete("content-length");
  const text = await answer.text();
  return new Response(text.replaceAll(tag, ""), { status, statusText, headers });
}
