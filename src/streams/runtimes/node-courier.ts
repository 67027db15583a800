/**
 * The courier on Node's http and https clients. It resolves a name itself, checks every address of the result, and
 * gives exactly those addresses to the socket. The name is never resolved a second time, so a result that changes in
 * between (DNS rebinding) has no effect.
 *
 * Every delivery has its own connection. Its guarantees are those of `courier.ts`.
 */

import { lookup as systemLookup } from "node:dns/promises";
import {
  Agent as HttpAgent,
  type ClientRequest,
  type IncomingMessage,
  request as sendHttp,
} from "node:http";
import { Agent as HttpsAgent, request as sendHttps } from "node:https";
import { isIP, type LookupFunction } from "node:net";
import { rootCertificates } from "node:tls";
import type { Courier, CourierAnswer, CourierRequest } from "../courier.ts";
import {
  type AllowedWebhookUrl,
  checkWebhookUrl,
  classifyAddress,
  isResolvedAddressAllowed,
} from "../../protocol/webhook-address.ts";

/** Returns all addresses of a name, in the order in which to try them. */
export type AddressLookup = (hostname: string) => Promise<readonly { readonly address: string }[]>;

export interface NodeCourierOptions {
  /** Whether `localhost` and 127.0.0.0/8 may be called, over http too. */
  readonly allowLoopback: boolean;
  /** Whether https to private networks is allowed. Default false. */
  readonly allowPrivate?: boolean;
  /** Default: the resolver of the operating system. */
  readonly lookup?: AddressLookup;
  /** Certificate authorities (PEM) to trust besides the public ones. */
  readonly authorities?: readonly string[];
}

interface Address {
  readonly address: string;
  readonly family: number;
}

type Resolution =
  | { readonly kind: "resolved"; readonly addresses: readonly Address[] }
  | Exclude<CourierAnswer, { kind: "answered" }>;

interface Agents {
  readonly http: HttpAgent;
  readonly https: HttpsAgent;
}

/** Node gives one of several addresses 250 ms, which is too short across an ocean. */
const ATTEMPT_MS = 2_000;

/** Headers that say where a request goes or where it ends. The caller cannot set them. */
const OWN_HEADERS: ReadonlySet<string> = new Set([
  "connection",
  "content-length",
  "expect",
  "host",
  "keep-alive",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

/** Creates the courier. It holds no resource between deliveries. */
export function createNodeCourier(options: NodeCourierOptions): Courier {
  const lookup = options.lookup ?? ((hostname) => systemLookup(hostname, { all: true }));
  const attempt = { keepAlive: false, autoSelectFamilyAttemptTimeout: ATTEMPT_MS };
  const agents: Agents = {
    http: new HttpAgent(attempt),
    https: new HttpsAgent({
      ...attempt,
      minVersion: "TLSv1.2",
      // Set explicitly, because an environment variable can turn the default off.
      rejectUnauthorized: true,
      ...(options.authorities && { ca: [...rootCertificates, ...options.authorities] }),
    }),
  };
  return {
    async deliver(request) {
      const url = checkWebhookUrl(request.url, options);
      if (url.kind === "rejected") return { kind: "refused", reason: url.reason };
      const limit = startLimit(request);
      try {
        const resolution = await resolve(url, options, lookup, limit.signal);
        if (resolution.kind !== "resolved") return resolution;
        return await exchange(request, url, resolution.addresses, agents, limit.signal);
      } finally {
        limit.stop();
      }
    },
  };
}

/** Returns one signal for the caller's abort and for the time limit. Its reason is that of the failure. */
function startLimit(request: CourierRequest): { signal: AbortSignal; stop: () => void } {
  const controller = new AbortController();
  const abort = (): void => controller.abort("the delivery was aborted");
  const timer = setTimeout(
    () => controller.abort(`no answer within ${request.timeoutMs} ms`),
    request.timeoutMs,
  );
  if (request.signal.aborted) abort();
  request.signal.addEventListener("abort", abort, { once: true });
  return {
    signal: controller.signal,
    // The caller's signal may live as long as the server, so the listener must go.
    stop() {
      clearTimeout(timer);
      request.signal.removeEventListener("abort", abort);
    },
  };
}

function resolve(
  url: AllowedWebhookUrl,
  options: NodeCourierOptions,
  lookup: AddressLookup,
  signal: AbortSignal,
): Promise<Resolution> {
  if (signal.aborted) return Promise.resolve(failed(signal.reason));
  return new Promise((settle) => {
    // A lookup cannot be cancelled; its late answer finds the promise settled.
    signal.addEventListener("abort", () => settle(failed(signal.reason)), { once: true });
    // A literal address was checked with the URL.
    const ask = async (): Promise<readonly { readonly address: string }[]> =>
      url.isLiteralAddress ? [{ address: url.hostname }] : lookup(url.hostname);
    ask().then(
      (found) => settle(judge(found, url, options)),
      (error: unknown) => settle(failed(error)),
    );
  });
}

/** Checks all addresses. One forbidden address refuses the whole result: an honest name has none. */
function judge(
  found: readonly { readonly address: string }[],
  url: AllowedWebhookUrl,
  options: NodeCourierOptions,
): Resolution {
  const bad = found.find(({ address }) => !isResolvedAddressAllowed(address, url, options));
  if (bad !== undefined) {
    return {
      kind: "refused",
      reason: `the host resolves to a ${classifyAddress(bad.address)} address`,
    };
  }
  if (found.length === 0) return failed("the host has no address");
  const addresses = found.map(({ address }) => ({ address, family: isIP(address) }));
  return { kind: "resolved", addresses };
}

function exchange(
  request: CourierRequest,
  url: AllowedWebhookUrl,
  addresses: readonly Address[],
  agents: Agents,
  signal: AbortSignal,
): Promise<CourierAnswer> {
  if (signal.aborted) return Promise.resolve(failed(signal.reason));
  const outgoing = openRequest(request, url, addresses, agents);
  return new Promise((resolveAnswer) => {
    const settle = (answer: CourierAnswer): void => {
      resolveAnswer(answer);
      outgoing.destroy();
    };
    signal.addEventListener("abort", () => settle(failed(signal.reason)), { once: true });
    let hasResponse = false;
    outgoing.on("response", (incoming) => {
      hasResponse = true;
      collect(incoming, request.answerBytesMax, settle);
    });
    outgoing.on("error", (error) => settle(failed(error)));
    // A request may close before the last bytes of its answer have been read.
    outgoing.on("close", () => {
      if (!hasResponse) settle(failed("the connection was closed without an answer"));
    });
    outgoing.end(request.body);
  });
}

function openRequest(
  request: CourierRequest,
  url: AllowedWebhookUrl,
  addresses: readonly Address[],
  agents: Agents,
): ClientRequest {
  const headers = Object.entries(request.headers).filter(
    ([name]) => !OWN_HEADERS.has(name.toLowerCase()),
  );
  const options = {
    method: "POST",
    hostname: url.hostname,
    port: url.port,
    path: url.target,
    headers: { ...Object.fromEntries(headers), "content-length": request.body.length },
    lookup: pinnedLookup(addresses),
  };
  if (url.scheme === "http") return sendHttp({ ...options, agent: agents.http });
  // An address is no server name. The certificate is then checked against the address itself.
  const servername = url.isLiteralAddress ? "" : url.hostname;
  return sendHttps({ ...options, agent: agents.https, servername });
}

/** Returns a lookup that gives the checked addresses for every name. */
function pinnedLookup(addresses: readonly Address[]): LookupFunction {
  return (_hostname, options, callback) => {
    queueMicrotask(() => {
      const [first] = addresses;
      if (options.all === true) callback(null, [...addresses]);
      else callback(null, first?.address ?? "", first?.family);
    });
  };
}

function collect(
  incoming: IncomingMessage,
  bytesMax: number,
  settle: (answer: CourierAnswer) => void,
): void {
  const tooLarge = failed(`the answer is larger than ${bytesMax} bytes`);
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  incoming.on("error", (error) => settle(failed(error)));
  incoming.on("close", () => settle(failed("the connection was closed within the answer")));
  incoming.on("end", () => {
    const body = new Uint8Array(Buffer.concat(chunks));
    settle({ kind: "answered", status: incoming.statusCode ?? 0, body });
  });
  incoming.on("data", (chunk: Uint8Array) => {
    bytes += chunk.length;
    if (bytes > bytesMax) settle(tooLarge);
    else chunks.push(chunk);
  });
  if (Number(incoming.headers["content-length"] ?? 0) > bytesMax) settle(tooLarge);
}

/** Describes a network error by its code only: its text would name addresses of this network. */
function failed(cause: unknown): { readonly kind: "failed"; readonly reason: string } {
  if (!(cause instanceof Error)) return { kind: "failed", reason: String(cause) };
  return { kind: "failed", reason: "code" in cause ? String(cause.code) : cause.message };
}
