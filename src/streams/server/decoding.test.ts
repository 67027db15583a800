// Compressed bodies take turns and share room. PROTOCOL.md §4.5
import { describe, expect, test } from "vitest";
import { Decoding, type Decompress } from "./decoding.ts";
import type { Exchange } from "./exchange.ts";

/** Decodes a body when the test calls `next`, and lists the bodies that it has begun. */
function held(): {
  readonly port: Decompress;
  readonly begun: string[];
  readonly next: () => void;
} {
  const begun: string[] = [];
  let next = (): void => undefined;
  return {
    begun,
    next: () => next(),
    port: {
      codings: ["gzip"],
      async decode(_coding, body) {
        begun.push(new TextDecoder().decode(body));
        await new Promise<void>((resolve) => {
          next = resolve;
        });
        return body;
      },
    },
  };
}

// Cast: decoding looks at nothing else of an exchange.
const from = (peer: string, isGone = false): Exchange => ({ peer, isGone }) as Exchange;
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe("compressed bodies", () => {
  test("of one address do not keep those of another waiting", async () => {
    const { port, begun, next } = held();
    const decoding = new Decoding(port);
    const all = ["a1", "a2", "a3", "a4", "b1", "c1"].map((name) =>
      decoding.decode(from(name.slice(0, 1)), "gzip", bytes(name), 100, 100),
    );
    for (let count = 1; count <= all.length; count += 1) {
      await turn();
      expect(begun).toHaveLength(count);
      next();
    }
    await Promise.all(all);
    expect(begun).toEqual(["a1", "a2", "b1", "c1", "a3", "a4"]);
    expect(decoding.waitingBytes).toBe(0);
  });

  test("that wait have a room, and those of one address half of it", async () => {
    const { port, next } = held();
    const decoding = new Decoding(port);
    const decode = (peer: string, count: number): Promise<Uint8Array> =>
      decoding.decode(from(peer), "gzip", new Uint8Array(count), 100, 100);
    // The first one is being decoded, and does not wait.
    const first = decode("a", 100);
    await turn();
    const waiting = [decode("a", 30)];
    await expect(decode("a", 30)).rejects.toMatchObject({ code: "too_many" });
    waiting.push(decode("b", 40), decode("c", 30));
    await expect(decode("d", 1)).rejects.toMatchObject({ code: "too_many" });
    expect(decoding.waitingBytes).toBe(100);
    next();
    await first;
    for (const one of waiting) {
      await turn();
      next();
      await one;
    }
    // A body that is larger than the half is taken if it is the only one of its address.
    const large = decode("a", 90);
    await turn();
    next();
    await large;
  });

  test("of a client that has gone are not decoded", async () => {
    const { port, begun } = held();
    const gone = new Decoding(port).decode(from("a", true), "gzip", bytes("a"), 100, 100);
    await expect(gone).rejects.toMatchObject({ code: "request_timeout" });
    expect(begun).toEqual([]);
  });

  test("are all refused where nothing decodes", async () => {
    const decoding = new Decoding(undefined);
    expect(decoding.codings).toEqual([]);
    const refused = decoding.decode(from("a"), "gzip", bytes("a"), 100, 100);
    await expect(refused).rejects.toMatchObject({ code: "unsupported_encoding" });
  });

  test("whose decoding fails are the client's fault, and the next one is decoded", async () => {
    const decoding = new Decoding({
      codings: ["gzip"],
      decode: async (_coding, body) => {
        if (body.length === 1) throw new Error("incorrect header check");
        return body;
      },
    });
    const bad = decoding.decode(from("a"), "gzip", bytes("x"), 100, 100);
    const good = decoding.decode(from("a"), "gzip", bytes("xy"), 100, 100);
    await expect(bad).rejects.toMatchObject({ code: "invalid_request" });
    expect(await good).toEqual(bytes("xy"));
  });
});
