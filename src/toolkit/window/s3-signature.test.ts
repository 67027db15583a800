// The examples of "Authenticating Requests: Using the Authorization Header" in the documentation of Amazon S3.
import { expect, test } from "vitest";
import { signS3Request } from "./s3-signature.ts";

const credentials = {
  accessKeyId: "AKIAIOSFODNN7EXAMPLE",
  secretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
};
const AT_MS = Date.UTC(2013, 4, 24);
const EMPTY = new Uint8Array();

async function signatureOf(
  method: string,
  path: string,
  headers: Record<string, string> = {},
  body: Uint8Array = EMPTY,
): Promise<string | undefined> {
  const url = new URL(`https://examplebucket.s3.amazonaws.com${path}`);
  const signed = await signS3Request(
    { method, url, headers, body },
    credentials,
    "us-east-1",
    AT_MS,
  );
  return /Signature=(.*)$/.exec(signed["authorization"] ?? "")?.[1];
}

test("an object is read", async () => {
  expect(await signatureOf("GET", "/test.txt", { range: "bytes=0-9" })).toBe(
    "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
  );
});

test("an object is written: its name has a character that must be encoded", async () => {
  const headers = {
    date: "Fri, 24 May 2013 00:00:00 GMT",
    "x-amz-storage-class": "REDUCED_REDUNDANCY",
  };
  const body = new TextEncoder().encode("Welcome to Amazon S3.");
  expect(await signatureOf("PUT", "/test$file.text", headers, body)).toBe(
    "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
  );
});

test("objects are listed", async () => {
  expect(await signatureOf("GET", "/?max-keys=2&prefix=J")).toBe(
    "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
  );
});

test("temporary credentials send their token, which is signed too", async () => {
  const url = new URL("https://examplebucket.s3.amazonaws.com/a");
  const request = { method: "GET", url, headers: {}, body: EMPTY };
  const signed = await signS3Request(request, { ...credentials, sessionToken: "T" }, "auto", AT_MS);
  expect(signed["x-amz-security-token"]).toBe("T");
  expect(signed["authorization"]).toContain("x-amz-date;x-amz-security-token");
});
