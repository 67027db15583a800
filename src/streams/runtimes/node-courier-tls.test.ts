import { once } from "node:events";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { CourierAnswer } from "../courier.ts";
import { createNodeCourier } from "./node-courier.ts";
import { selfSigned } from "../../../test/kits/certificates.ts";

const { key, cert } = selfSigned("localhost");
let server: Server;
let port = 0;

beforeEach(async () => {
  server = createServer({ key, cert }, (request, response) => {
    request.resume();
    response.end("ok");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  port = (server.address() as AddressInfo).port;
});

afterEach(() => {
  server.close();
  server.closeAllConnections();
});

function deliver(
  host: string,
  authorities: readonly string[],
  headers: Readonly<Record<string, string>> = {},
): Promise<CourierAnswer> {
  const lookup = async (): Promise<{ address: string }[]> => [{ address: "127.0.0.1" }];
  return createNodeCourier({ allowLoopback: true, lookup, authorities }).deliver({
    url: `https://${host}:${port}/`,
    headers,
    body: new Uint8Array(3),
    timeoutMs: 5_000,
    answerBytesMax: 10,
    signal: new AbortController().signal,
  });
}

test("a certificate of a trusted authority is accepted for its own name", async () => {
  expect(await deliver("localhost", [cert])).toMatchObject({ kind: "answered", status: 200 });
});

test("a certificate of an unknown authority is a failure", async () => {
  const reason = "DEPTH_ZERO_SELF_SIGNED_CERT";
  expect(await deliver("localhost", [])).toEqual({ kind: "failed", reason });
});

test("a certificate for another name is a failure, also when a Host header names it", async () => {
  const reason = "ERR_TLS_CERT_ALTNAME_INVALID";
  expect(await deliver("127.0.0.1", [cert])).toEqual({ kind: "failed", reason });
  const answer = await deliver("127.0.0.1", [cert], { host: "localhost" });
  expect(answer).toEqual({ kind: "failed", reason });
});
