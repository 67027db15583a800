// PROTOCOL.md §21.8
import { crc32 } from "node:zlib";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { systemRandom } from "../../base/random.ts";
import { areSameDigests, createApiKey, parseApiKey } from "./api-key.ts";

const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

describe("the format of API keys", () => {
  test("a new key has the published form, and is read back as its parts", () => {
    for (let round = 0; round < 200; round += 1) {
      const { key, id, secret } = createApiKey(systemRandom);
      expect(key).toMatch(/^hpx_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}$/);
      expect(parseApiKey(key)).toEqual({ id, secret });
    }
  });

  test("the checksum is the CRC-32 of all that stands before it, in base 62", () => {
    const { key } = createApiKey(systemRandom);
    let value = 0n;
    for (const digit of key.slice(-6)) value = value * 62n + BigInt(DIGITS.indexOf(digit));
    expect(Number(value)).toBe(crc32(key.slice(0, -6)));
  });

  test("the secret has all of its 256 random bits", () => {
    const ids = ["0".repeat(32), "f".repeat(32), `${"f".repeat(31)}e`];
    const secretOf = (...given: readonly string[]): string => {
      const queue = [...given];
      return createApiKey({ unit: () => 0, id: () => queue.shift() ?? "" }).secret;
    };
    const [zero = "", all = "", last = ""] = ids;
    // The first id of three is that of the key; the two others make the secret.
    const secrets = [
      secretOf(zero, zero, zero),
      secretOf(zero, all, zero),
      secretOf(zero, zero, all),
      secretOf(zero, zero, last),
      secretOf(zero, all, all),
    ];
    expect(new Set(secrets).size).toBe(secrets.length);
    expect(secrets[0]).toBe("0".repeat(43));
    let value = 0n;
    for (const digit of secrets[4] ?? "") value = value * 62n + BigInt(DIGITS.indexOf(digit));
    expect(value).toBe(2n ** 256n - 1n);
  });

  test("every single changed, dropped, doubled or swapped character is refused", () => {
    const { key } = createApiKey(systemRandom);
    for (let at = 0; at < key.length; at += 1) {
      for (const digit of `${DIGITS}_- `) {
        if (digit === key[at]) continue;
        expect(parseApiKey(key.slice(0, at) + digit + key.slice(at + 1))).toBeUndefined();
      }
      expect(parseApiKey(key.slice(0, at) + key.slice(at + 1))).toBeUndefined();
      expect(parseApiKey(key.slice(0, at) + (key[at] ?? "") + key.slice(at))).toBeUndefined();
      const swapped = key.slice(0, at) + (key[at + 1] ?? "") + (key[at] ?? "") + key.slice(at + 2);
      if (swapped !== key) expect(parseApiKey(swapped)).toBeUndefined();
    }
  });

  test("no other text is a key", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary", maxLength: 100 }), (text) => {
        expect(parseApiKey(text)).toBeUndefined();
        expect(parseApiKey(`hpx_${text}`)).toBeUndefined();
      }),
    );
  });

  test("a text of a megabyte is refused by its length", () => {
    const long = `hpx_${"a".repeat(1024 * 1024)}`;
    const beganMs = performance.now();
    for (let round = 0; round < 10_000; round += 1) expect(parseApiKey(long)).toBeUndefined();
    // A look at each character would take minutes.
    expect(performance.now() - beganMs).toBeLessThan(5000);
  });
});

describe("the comparison of digests", () => {
  const digest = Uint8Array.from({ length: 32 }, (_, at) => at * 7);

  test("only equal digests are equal", () => {
    expect(areSameDigests(digest, Uint8Array.from(digest))).toBe(true);
    for (let bit = 0; bit < 256; bit += 1) {
      const other = Uint8Array.from(digest);
      other[bit >> 3] = (other[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      expect(areSameDigests(digest, other)).toBe(false);
    }
    expect(areSameDigests(digest, digest.subarray(1))).toBe(false);
  });

  test("every byte of both is looked at, wherever they differ", () => {
    for (const at of [0, 1, 15, 31]) {
      const other = Uint8Array.from(digest);
      other[at] = (other[at] ?? 0) ^ 1;
      const reads = [digest, other].map((bytes) => counted(bytes));
      expect(areSameDigests(reads[0]?.bytes ?? [], reads[1]?.bytes ?? [])).toBe(false);
      expect(reads.map(({ seen }) => seen)).toEqual([[...digest.keys()], [...digest.keys()]]);
    }
  });
});

/** The bytes, and the places that were read. */
function counted(bytes: Uint8Array): { bytes: ArrayLike<number>; seen: number[] } {
  const seen: number[] = [];
  const proxy = new Proxy<ArrayLike<number>>(Array.from(bytes), {
    get(target, name) {
      if (typeof name === "string" && /^\d+$/.test(name)) seen.push(Number(name));
      return Reflect.get(target, name) as unknown;
    },
  });
  return { bytes: proxy, seen };
}
