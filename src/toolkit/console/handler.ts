/**
 * The console of a ledger as a handler of requests.
 *
 *   - it acts on the end of a path alone, so it works under any path of the user's app;
 *   - nothing is answered before `authorize` has decided, and nothing is changed but by a visitor who may, from the page itself.
 */

import { tellSafely } from "../../base/error-words.ts";
import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { systemRandom } from "../../base/random.ts";
import type { Ledger } from "../ledgers/ledger.ts";
import { doAct } from "./acts.ts";
import type { ConsoleOptions, ConsoleVisitor, LedgerConsole } from "./contract.ts";
import {
  ACTS,
  actsOf,
  admit,
  requireAct,
  requireNoOtherSite,
  requireOwnPage,
  requireValues,
} from "./guard.ts";
import { COUNTED_MAX } from "./limits.ts";
import { answerError, answerFile, answerJson, answerPage, answerSlash } from "./page.ts";
import { invalidAsk, ConsoleQuery, readAct } from "./query.ts";
import {
  countKinds,
  listEntries,
  listHeld,
  listRelays,
  listSagaRows,
  showEntry,
  showSaga,
} from "./reading.ts";
import type { OverviewView } from "./views.ts";

/**
 * Creates a web page over your own database. It shows entries, running and stuck work, sagas with their time line, the
 * lag of your outbox, and held and dead events. Mount `fetch` under any path of your app. Visitors may read; they may
 * do more only if your `authorize` says so. Throws `invalid_options` without `authorize`.
 *
 * ```ts
 * import { createConsole } from "hapax/console";
 * import { GLOBAL, processOnce } from "hapax/ledger";
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const ledger = memoryLedger();
 * await processOnce(ledger, { scope: GLOBAL, key: "order-17" }, () => "paid");
 *
 * const admin = createConsole(ledger, {
 *   authorize: (request) =>
 *     request.headers.get("cookie") === "session=ann" ? { by: "ann", mayAct: true } : undefined,
 * });
 * const url = "https://shop.example/admin/hapax/api/entries?kind=once";
 * const ann = await admin.fetch(new Request(url, { headers: { cookie: "session=ann" } }));
 * console.assert((await ann.json()).rows[0].key === "order-17");
 * const stranger = await admin.fetch(new Request(url));
 * console.assert(stranger.status === 403);
 * ```
 */
export function createConsole<Tx>(ledger: Ledger<Tx>, options: ConsoleOptions): LedgerConsole {
  // In JavaScript they may be missing.
  const { authorize }: Partial<ConsoleOptions> = Object(options);
  if (typeof authorize !== "function")
    throw new HapaxError(
      "invalid_options",
      "pass authorize: a function that says who may see the console, and who may act",
    );
  if (ledger.isJoined)
    throw new HapaxError("invalid_options", "pass the ledger itself, not ledger.in(tx)");
  return {
    async fetch(request) {
      const answer = await answerSafely(ledger, request, options);
      return request.method === "HEAD" ? new Response(null, answer) : answer;
    },
  };
}

async function answerSafely<Tx>(
  ledger: Ledger<Tx>,
  request: Request,
  options: ConsoleOptions,
): Promise<Response> {
  try {
    const visitor = await admit(request, options);
    return visitor instanceof Response ? visitor : await answer(ledger, request, visitor, options);
  } catch (error) {
    if (isHapaxError(error) && error.status < 500) return answerError(error as HapaxError);
    if (options.onError !== undefined) tellSafely(options.onError, error);
    // What a database says of itself is not for the page.
    return answerError(
      new HapaxError(
        "internal",
        "the ledger could not be read; `onError` of the app has the error",
      ),
    );
  }
}

async function answer<Tx>(
  ledger: Ledger<Tx>,
  request: Request,
  visitor: ConsoleVisitor,
  options: ConsoleOptions,
): Promise<Response> {
  const { pathname, searchParams } = new URL(request.url);
  const isLook = request.method === "GET" || request.method === "HEAD";
  const api = /\/api\/([a-z]+)$/.exec(pathname)?.[1];
  if (api === "act") {
    if (request.method !== "POST") throw wrongMethod();
    return await act(ledger, request, visitor, options);
  }
  if (!isLook) throw wrongMethod();
  if (api !== undefined) {
    requireNoOtherSite(request);
    return answerJson(
      200,
      await read(ledger, api, new ConsoleQuery(searchParams), visitor, options),
    );
  }
  if (pathname.endsWith("/app.js")) return answerFile("script");
  if (pathname.endsWith("/app.css")) return answerFile("style");
  const title = options.title ?? ledger.name;
  return pathname.endsWith("/")
    ? answerPage(`${title} · Hapax console`, systemRandom)
    : answerSlash(pathname);
}

function wrongMethod(): HapaxError {
  return new HapaxError("method_not_allowed", "the console takes GET, and POST for acts");
}

async function read<Tx>(
  ledger: Ledger<Tx>,
  what: string,
  query: ConsoleQuery,
  visitor: ConsoleVisitor,
  { title }: ConsoleOptions,
): Promise<unknown> {
  const areValuesAsked = query.find("values") === "yes";
  if (areValuesAsked) requireValues(visitor);
  switch (what) {
    case "overview":
      return await overview(ledger, visitor, title);
    case "entries":
      return await listEntries(ledger, query);
    case "entry":
      return await showEntry(ledger, query, areValuesAsked);
    case "sagas":
      return await listSagaRows(ledger, query);
    case "saga":
      return await showSaga(ledger, query, areValuesAsked);
    case "held":
      return await listHeld(ledger, query, areValuesAsked);
    default:
      throw new HapaxError("not_found", "the console has no such page");
  }
}

async function overview<Tx>(
  ledger: Ledger<Tx>,
  visitor: ConsoleVisitor,
  title = ledger.name,
): Promise<OverviewView> {
  const { durability, outbox } = ledger.supports;
  return {
    title,
    ledger: ledger.name,
    durability,
    by: visitor.by,
    acts: actsOf(visitor),
    maySeeValues: visitor.maySeeValues === true,
    countMax: COUNTED_MAX,
    kinds: await countKinds(ledger),
    hasOutbox: outbox.length > 0,
    relays: await listRelays(ledger),
  };
}

async function act<Tx>(
  ledger: Ledger<Tx>,
  request: Request,
  visitor: ConsoleVisitor,
  { origin, onAct, onError }: ConsoleOptions,
): Promise<Response> {
  requireOwnPage(request, origin);
  const body = await readAct(request);
  const name = body.need("act");
  const chosen = ACTS.find((one) => one === name);
  if (chosen === undefined) throw invalidAsk("there is no such act");
  requireAct(visitor, chosen);
  const { count, ...deed } = await doAct(ledger, chosen, visitor.by, body);
  try {
    onAct?.(deed);
  } catch (error) {
    // It is done, also if the audit log fails.
    if (onError !== undefined) tellSafely(onError, error);
  }
  return answerJson(200, { count });
}
