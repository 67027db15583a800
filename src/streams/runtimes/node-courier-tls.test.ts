import { generateKeyPairSync, sign } from "node:crypto";
import { once } from "node:events";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { CourierAnswer } from "../courier.ts";
import { createNodeCourier } from "./node-courier.ts";

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

/** Makes an X.509 certificate, so that the repository holds no key and no certificate can expire. */
function selfSigned(name: string): { key: string; cert: string } {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "prime256v1" });
  const der = (tag: number, ...parts: Uint8Array[]): Uint8Array => {
    const content = Buffer.concat(parts);
    const { length } = content;
    const head = length < 128 ? [tag, length] : [tag, 0x82, length >> 8, length & 0xff];
    return Buffer.concat([Buffer.from(head), content]);
  };
  const hex = (digits: string): Uint8Array => Buffer.from(digits, "hex");
  const ascii = (value: string): Uint8Array => Buffer.from(value, "ascii");
  const ecdsaWithSha256 = der(0x30, der(0x06, hex("2a8648ce3d040302")));
  const commonName = der(0x30, der(0x06, hex("550403")), der(0x0c, ascii(name)));
  const subject = der(0x30, der(0x31, commonName));
  const validity = der(
    0x30,
    der(0x18, ascii("20200101000000Z")),
    der(0x18, ascii("99991231235959Z")),
  );
  const names = der(0x04, der(0x30, der(0x82, ascii(name))));
  const extensions = der(0xa3, der(0x30, der(0x30, der(0x06, hex("551d11")), names)));
  const body = der(
    0x30,
    der(0xa0, der(0x02, hex("02"))),
    der(0x02, hex("01")),
    ecdsaWithSha256,
    subject,
    validity,
    subject,
    publicKey.export({ type: "spki", format: "der" }),
    extensions,
  );
  const signature = der(0x03, hex("00"), sign("sha256", body, privateKey));
  const certificate = Buffer.from(der(0x30, body, ecdsaWithSha256, signature)).toString("base64");
  return {
    key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    cert: `-----BEGIN CERTIFICATE-----\n${certificate}\n-----END CERTIFICATE-----\n`,
  };
}
