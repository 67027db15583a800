/**
 * The page of the console and the headers of its answers.
 *
 *   - it lies beside pages of the user's app, so it runs the one script that carries the nonce of its answer, and no other of this
 *     origin; no text can become markup, and no other site can frame it;
 *   - all its URLs are relative, so that it works under any path.
 */

import { HapaxError } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";
import { CONSOLE_FILES, type ConsoleFiles } from "./files.ts";

/** What every answer says to a browser. */
const COMMON = {
  "Cache-Control": "no-store",
  "X-Content-Type-Options": "nosniff",
  "Cross-Origin-Resource-Policy": "same-origin",
  "Referrer-Policy": "no-referrer",
  // For all but the page: what is opened as one can do nothing.
  "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
} as const;

export function answerJson(status: number, body: unknown): Response {
  const headers = { ...COMMON, "Content-Type": "application/json" };
  return new Response(JSON.stringify(body), { status, headers });
}

export function answerError({ code, message, status, help }: HapaxError): Response {
  // The help of this code is about tokens of a server.
  const next = code === "not_allowed" ? "The function `authorize` of the app decides this." : help;
  return answerJson(status, { code, detail: message, help: next });
}

/** Leads from `/admin/hapax` to `/admin/hapax/`: relative, because a proxy may have added a beginning to the path. */
export function answerSlash(path: string): Response {
  const last = path.slice(path.lastIndexOf("/") + 1);
  return new Response(null, { status: 308, headers: { ...COMMON, Location: `./${last}/` } });
}

export function answerFile(name: "script" | "style"): Response {
  const type = name === "script" ? "text/javascript" : "text/css";
  const headers = { ...COMMON, "Content-Type": `${type}; charset=utf-8` };
  return new Response(builtFiles()[name], { status: 200, headers });
}

export function answerPage(title: string, random: Random): Response {
  const { version } = builtFiles();
  const nonce = random.id();
  const page = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escapeText(title)}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" nonce="${nonce}" href="app.css?v=${version}">
<script type="module" nonce="${nonce}" src="app.js?v=${version}"></script>
</head>
<body>
<div id="app"></div>
<noscript>This page needs JavaScript.</noscript>
</body>
</html>
`;
  const policy = [
    "default-src 'none'",
    `script-src 'nonce-${nonce}'`,
    `style-src 'nonce-${nonce}'`,
    "img-src data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join("; ");
  const headers = {
    ...COMMON,
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": policy,
  };
  return new Response(page, { status: 200, headers });
}

function escapeText(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function builtFiles(): ConsoleFiles {
  if (CONSOLE_FILES === undefined)
    throw new HapaxError("not_found", "this program was built without the page of the console");
  return CONSOLE_FILES;
}
