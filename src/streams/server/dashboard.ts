/**
 * The dashboard: a page that shows the server to a person. `/` answers it to browsers, `/_hapax/ui/` to everybody. PROTOCOL.md §12.13.
 *
 *   - the page and its files need no identity, and hold nothing of the server: what they show they ask for, with the rights of the
 *     person who looks;
 *   - they lie beside streams, which may hold anything. So the page runs the one script that carries the nonce of its answer, and
 *     nothing else of this origin;
 *   - all its URLs are relative, so that it works behind a proxy that adds a beginning to paths.
 */

import { HapaxError } from "../../base/errors.ts";
import { HEADER } from "../../protocol/headers.ts";
import type { AnswerHeaders, Exchange, ServerAnswer, WholeAnswer } from "./exchange.ts";
import type { ServerParts } from "./parts.ts";
import { readRoute, type Route, type RouteCall } from "./route.ts";

/** The files of the dashboard, as the build makes them. */
export interface DashboardFiles {
  readonly script: string;
  readonly style: string;
  /** Changes with the files. */
  readonly version: string;
}

/** Loads the files when a browser first asks for them. Undefined: this program was built without them. */
export type LoadDashboard = () => Promise<DashboardFiles | undefined>;

const ROOT = "/_hapax/ui";
const SCRIPT = "app.js";
const STYLE = "app.css";
const utf8 = new TextEncoder();

export const DASHBOARD_ROUTES: readonly Route[] = [
  readRoute(ROOT, {
    needs: "nothing",
    // Relative: a proxy may have added a beginning to the path.
    handle: () => ({
      status: 308,
      headers: { Location: "ui/", [HEADER.cacheControl]: "no-store" },
    }),
  }),
  readRoute(`${ROOT}/`, {
    needs: "nothing",
    handle: async ({ parts }) => (await pageOf(parts, "")) ?? notBuilt(),
  }),
  readRoute(`${ROOT}/${SCRIPT}`, {
    needs: "nothing",
    handle: (call) => answerFile(call, "script", "text/javascript; charset=utf-8"),
  }),
  readRoute(`${ROOT}/${STYLE}`, {
    needs: "nothing",
    handle: (call) => answerFile(call, "style", "text/css; charset=utf-8"),
  }),
];

/** The dashboard for a browser that visits the server itself; undefined for programs, and where there is none. */
export async function dashboardAtFront({
  exchange,
  parts,
}: RouteCall): Promise<ServerAnswer | undefined> {
  return wantsPage(exchange) ? pageOf(parts, "_hapax/ui/") : undefined;
}

/** Browsers name HTML first. Programs take everything, or name what they want. */
function wantsPage(exchange: Exchange): boolean {
  return /(?:^|,)\s*(?:text\/html|application\/xhtml\+xml)\s*(?:,|;|$)/i.test(
    exchange.header("accept") ?? "",
  );
}

async function pageOf(
  { dashboard, random }: ServerParts,
  base: string,
): Promise<WholeAnswer | undefined> {
  const files = await dashboard?.();
  if (files === undefined) return undefined;
  const nonce = random.id();
  const { version } = files;
  const page = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Hapax</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" nonce="${nonce}" href="${base}${STYLE}?v=${version}">
<script type="module" nonce="${nonce}" src="${base}${SCRIPT}?v=${version}"></script>
</head>
<body>
<div id="app"></div>
<noscript>This page needs JavaScript. The same figures are at /metrics, and \`hapax top\` shows them in a terminal.</noscript>
</body>
</html>
`;
  return {
    status: 200,
    headers: { ...pageHeaders(nonce), [HEADER.contentType]: "text/html; charset=utf-8" },
    body: utf8.encode(page),
    // Also so that these headers replace those of streams, one by one.
    mayCompress: true,
  };
}

/** One script and one style, both of this answer. No frame, no form that leaves, no text that becomes markup. */
function pageHeaders(nonce: string): AnswerHeaders {
  return {
    "Content-Security-Policy": [
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
    ].join("; "),
    "Referrer-Policy": "no-referrer",
    [HEADER.cacheControl]: "no-store",
    Vary: "Accept, Origin",
  };
}

async function answerFile(
  { exchange, parts }: RouteCall,
  name: "script" | "style",
  type: string,
): Promise<ServerAnswer> {
  const files = await parts.dashboard?.();
  if (files === undefined) return notBuilt();
  const tag = `"${files.version}"`;
  const headers = {
    [HEADER.contentType]: type,
    [HEADER.etag]: tag,
    [HEADER.cacheControl]: "no-cache",
  };
  const known = exchange.header("if-none-match") ?? "";
  if (known === tag || known === `W/${tag}`) return { status: 304, headers, mayCompress: true };
  return { status: 200, headers, body: utf8.encode(files[name]), mayCompress: true };
}

function notBuilt(): never {
  throw new HapaxError("not_found", "this server has no dashboard");
}
