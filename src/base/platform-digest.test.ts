import { expect, test } from "vitest";
import { webDigest } from "./digest.ts";
import { platformDigest } from "./platform-digest.ts";

test.for([0, 5, 65_536, 65_537])("the digest of %d bytes is that of Web Crypto", async (length) => {
  const bytes = new Uint8Array(length).fill(7);
  expect(new Uint8Array(await platformDigest()(bytes))).toEqual(await webDigest(bytes));
});
