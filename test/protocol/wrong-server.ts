/** A server that breaks one rule: a proxy before a right one, which changes requests or answers on their way. */

import {
  Agent,
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  request,
  type Server,
  type ServerResponse,
} from "node:http";
import type { AddressInfo } from "node:net";
import { call, type HttpAnswer } from "./raw-http.ts";

export interface Passing {
  readonly method: string;
  path: string;
  readonly headers: IncomingHttpHeaders;
  body: Buffer;
}

export interface Passed {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** One letter for each byte, so that every body passes as it is. */
  readonly body: string;
  /** A live answer, whose events pass as they come. */
  readonly live?: IncomingMessage;
}

/** How the server is wrong. Without members it is right. */
export interface Wrong {
  /** Changes the headers or the body of a request in place. */
  readonly request?: (passing: Passing) => void;
  /** Answers in place of the server behind. */
  readonly instead?: (passing: Passing, upstream: string) => Promise<Passed | undefined>;
  /** Changes an answer. */
  readonly answer?: (passed: Passed, passing: Passing, upstream: string) => Promise<Passed>;
  /** Goes on with a request whose client has gone. */
  readonly isDeafToAborts?: boolean;
}

/** A rule that a server breaks, and titles of cases that must see it. */
export interface Broken {
  readonly rule: string;
  readonly wrong: Wrong;
  readonly seenBy: readonly string[];
}

export function refusal(
  status: number,
  code: string,
  headers: Record<string, string> = {},
  facts: Record<string, unknown> = {},
): Passed {
  const type = { "content-type": "application/problem+json" };
  const body = JSON.stringify({ status, code, ...facts });
  return { status, headers: { ...type, ...headers }, body };
}

export interface WrongServer {
  readonly url: string;
  stop(): Promise<void>;
}

export async function startWrongServer(upstream: string, wrong: Wrong): Promise<WrongServer> {
  const agent = new Agent({ keepAlive: true });
  const server = createServer((incoming, outgoing) => {
    pass(incoming, outgoing, upstream, wrong, agent).catch(() => outgoing.destroy());
  });
  // A client must not find that its idle connection is closed just when it sends.
  server.keepAliveTimeout = 60_000;
  await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async stop() {
      agent.destroy();
      await closed(server);
    },
  };
}

function closed(server: Server): Promise<void> {
  server.closeAllConnections();
  return new Promise((resolve) => void server.close(() => resolve()));
}

async function pass(
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  upstream: string,
  wrong: Wrong,
  agent: Agent,
): Promise<void> {
  const pieces: Buffer[] = [];
  for await (const piece of incoming) pieces.push(piece as Buffer);
  const { method = "", url: path = "" } = incoming;
  const passing: Passing = {
    method,
    path,
    headers: { ...incoming.headers },
    body: Buffer.concat(pieces),
  };
  wrong.request?.(passing);
  let passed = await wrong.instead?.(passing, upstream);
  passed ??= await forward(passing, upstream, agent, (abort) => {
    if (wrong.isDeafToAborts !== true) outgoing.once("close", abort);
  });
  passed = (await wrong.answer?.(passed, passing, upstream)) ?? passed;
  const headers = { ...passed.headers };
  delete headers["content-length"];
  delete headers["transfer-encoding"];
  outgoing.writeHead(passed.status, headers);
  if (passed.live === undefined) outgoing.end(passed.body, "latin1");
  else passed.live.pipe(outgoing);
}

function forward(
  passing: Passing,
  upstream: string,
  agent: Agent,
  onGone: (abort: () => void) => void,
): Promise<Passed> {
  const { method, path, body, headers: given } = passing;
  // A changed body has a length of its own.
  const headers = { ...given };
  if ("content-length" in headers) headers["content-length"] = String(body.length);
  return new Promise((resolve, reject) => {
    const sent = request(upstream + path, { method, headers, agent });
    onGone(() => sent.destroy());
    sent.on("error", reject);
    sent.on("response", (response) => {
      const { statusCode: status = 0, headers } = response;
      if (headers["content-type"] === "text/event-stream") {
        resolve({ status, headers, body: "", live: response });
        return;
      }
      let text = "";
      response.setEncoding("latin1").on("data", (piece: string) => (text += piece));
      response.on("error", reject);
      response.on("end", () => {
        resolve({ status, headers, body: text });
      });
    });
    sent.end(body);
  });
}

/** What the right server says of a stream at this moment. */
export function tailOf(upstream: string, path: string): Promise<HttpAnswer> {
  return call("HEAD", upstream, path);
}
