/**
 * X.509 certificates for tests, made by hand: so the repository holds no key, and no certificate can expire. An authority
 * signs certificates of servers and clients.
 */

import { generateKeyPairSync, type KeyObject, sign } from "node:crypto";

export interface Certificate {
  /** PEM. */
  readonly cert: string;
  /** PEM, PKCS #8. */
  readonly key: string;
}

export interface CertificateOptions {
  /** Host name, or the name of a client. */
  readonly name: string;
  /** IPv4 addresses beside the name. */
  readonly addresses?: readonly string[];
  /** End of its validity, as `YYYYMMDDhhmmssZ`. Default: never. */
  readonly notAfter?: string;
}

export interface Authority extends Certificate {
  /** Issues a certificate for a server or a client. */
  issue(options: CertificateOptions): Certificate;
}

const der = (tag: number, ...parts: Uint8Array[]): Uint8Array => {
  const content = Buffer.concat(parts);
  const { length } = content;
  // As short as it can be: DER allows no other length, and Go reads no other.
  const long = length < 256 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  const head = [tag, ...(length < 128 ? [length] : long)];
  return Buffer.concat([Buffer.from(head), content]);
};
const hex = (digits: string): Uint8Array => Buffer.from(digits, "hex");
const ascii = (value: string): Uint8Array => Buffer.from(value, "ascii");
const ECDSA_WITH_SHA256 = der(0x30, der(0x06, hex("2a8648ce3d040302")));

const nameOf = (name: string): Uint8Array =>
  der(0x30, der(0x31, der(0x30, der(0x06, hex("550403")), der(0x0c, ascii(name)))));

function altNames({ name, addresses = [] }: CertificateOptions): Uint8Array {
  const entries = addresses.map((address) =>
    der(0x87, Buffer.from(address.split(".").map(Number))),
  );
  const names = der(0x04, der(0x30, der(0x82, ascii(name)), ...entries));
  return der(0x30, der(0x06, hex("551d11")), names);
}

const IS_AUTHORITY = der(
  0x30,
  der(0x06, hex("551d13")),
  der(0x01, hex("ff")),
  der(0x04, der(0x30, der(0x01, hex("ff")))),
);

interface Issuer {
  readonly name: string;
  readonly key: KeyObject;
}

let serial = 0;

function make(
  options: CertificateOptions,
  issuer: Issuer | undefined,
  isAuthority: boolean,
): Certificate & { readonly privateKey: KeyObject } {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "prime256v1" });
  const { name, notAfter = "99991231235959Z" } = options;
  serial += 1;
  const body = der(
    0x30,
    der(0xa0, der(0x02, hex("02"))),
    der(0x02, Buffer.from([1, serial >> 8, serial & 0xff])),
    ECDSA_WITH_SHA256,
    nameOf(issuer?.name ?? name),
    der(0x30, der(0x18, ascii("20200101000000Z")), der(0x18, ascii(notAfter))),
    nameOf(name),
    publicKey.export({ type: "spki", format: "der" }),
    der(0xa3, der(0x30, isAuthority ? IS_AUTHORITY : altNames(options))),
  );
  const signature = der(0x03, hex("00"), sign("sha256", body, issuer?.key ?? privateKey));
  const whole = Buffer.from(der(0x30, body, ECDSA_WITH_SHA256, signature)).toString("base64");
  const lines = whole.replace(/(.{64})/g, "$1\n").trimEnd();
  return {
    key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    cert: `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`,
    privateKey,
  };
}

/** A certificate that is its own authority. */
export function selfSigned(name: string): Certificate {
  const { cert, key } = make({ name }, undefined, false);
  return { cert, key };
}

/** An authority whose certificates only those trust that have its own. */
export function createAuthority(name = "hapax test authority"): Authority {
  const own = make({ name }, undefined, true);
  return {
    cert: own.cert,
    key: own.key,
    issue(options) {
      const { cert, key } = make(options, { name, key: own.privateKey }, false);
      return { cert, key };
    },
  };
}
