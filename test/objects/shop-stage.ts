/** A workerd with the objects of fixtures/shop.ts, and a place where they stop until the test says what becomes of them. */

import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type ObjectsHost, startObjects, type TestObject } from "../kits/workerd-objects.ts";

/** What an object does that has stopped. */
export type Onward = "go" | "abort";

export interface ShopStage {
  readonly host: ObjectsHost;
  shop(name: string): TestObject;
  /** What an object has done, in its order. */
  effects(name: string): Promise<readonly string[]>;
  /** Charges of the bank, with how often each came. */
  charges(): Promise<readonly { readonly key: string; readonly calls: number }[]>;
  /** Resolves when an object has stopped at this failpoint. The result lets it go on. */
  stopped(name: string): Promise<(onward: Onward) => void>;
  stop(): Promise<void>;
}

export async function startShop(): Promise<ShopStage> {
  const arrivals = new Map<string, (onward: Onward) => void>();
  const waiting = new Map<string, (go: (onward: Onward) => void) => void>();
  const server = createServer((request, response) => {
    const name = decodeURIComponent((request.url ?? "/").slice(1));
    const go = (onward: Onward): void => void response.end(onward);
    const tell = waiting.get(name);
    if (tell === undefined) arrivals.set(name, go);
    else tell(go);
    waiting.delete(name);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const host = await startObjects({
    source: new URL("fixtures/shop.ts", import.meta.url),
    classes: ["Shop", "Bank"],
    texts: { STOPS: `http://127.0.0.1:${String(port)}/` },
  });
  const shop = (name: string): TestObject => host.object("Shop", name);
  return {
    host,
    shop,
    effects: (name) => shop(name).json("/effects"),
    charges: () => host.object("Bank", "bank").json("/"),
    stopped: (name) =>
      new Promise((resolve) => {
        const go = arrivals.get(name);
        arrivals.delete(name);
        if (go === undefined) waiting.set(name, resolve);
        else resolve(go);
      }),
    async stop() {
      await host.stop();
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

/** Asks again until the answer is as wanted. Throws what `check` threw last. */
export async function eventually<T>(
  read: () => Promise<T>,
  check: (value: T) => void,
  forMs = 20_000,
): Promise<T> {
  const endMs = performance.now() + forMs;
  for (;;) {
    try {
      const value = await read();
      check(value);
      return value;
    } catch (error) {
      if (performance.now() > endMs) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}
