/**
 * Requests to the console that the page came from. All URLs begin where the script lies, so that the page works below any path. The
 * app's own session says who the person is.
 */

import { Refusal, refusalOf } from "../refusal.ts";

export type Query = Readonly<Record<string, string | undefined>>;

async function send(url: URL, init: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, { ...init, cache: "no-store", credentials: "same-origin" });
  } catch (error) {
    if (init.signal?.aborted === true) throw error;
    throw new Refusal(0, "unreachable", "the app does not answer", "The page tries again.");
  }
  const isJson = response.headers.get("content-type")?.startsWith("application/json") === true;
  if (response.ok && isJson) return response;
  // A session that is over leads to a login, which is a page.
  if (response.ok || response.redirected)
    throw new Refusal(401, "no_session", "your session is over", "Load this page anew to log in.");
  throw await refusalOf(response);
}

export async function ask<T>(what: string, query: Query, signal: AbortSignal): Promise<T> {
  const url = new URL(`api/${what}`, import.meta.url);
  for (const [name, value] of Object.entries(query))
    if (value !== undefined) url.searchParams.set(name, value);
  // The console is of the same version as its page.
  return (await (await send(url, { signal })).json()) as T;
}

/** Does an act. The header is one that no other site can send. */
export async function act(body: Readonly<Record<string, unknown>>): Promise<void> {
  await send(new URL("api/act", import.meta.url), {
    method: "POST",
    headers: { "Content-Type": "application/json", "Hapax-Console": "act" },
    body: JSON.stringify(body),
  });
}
