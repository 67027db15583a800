/** Certificates for tests of TLS. */

import { generateKeyPairSync, sign } from "node:crypto";

/** Makes an X.509 certificate, so that the repository holds no key and no certificate can expire. */
export function selfSigned(name: string): { key: string; cert: string } {
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
