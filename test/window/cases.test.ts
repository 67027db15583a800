// WD1 to WD7 over both adapters: the eight edge cases of the window, each to its end. test/heavy/window-kills.test.ts kills them.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as api from "../../src/toolkit/window.ts";
import { cases, createWorld, verify } from "./cases.mjs";
import { realServers, Unavailable } from "./s3-servers.ts";
import { fakeStores, fileStores, s3Stores, type TestStores } from "./stores.ts";

const kinds: { readonly name: string; readonly open?: () => Promise<TestStores> }[] = [
  { name: "files", open: () => Promise.resolve(fileStores()) },
  { name: "S3, a fake", open: fakeStores },
  ...realServers().map(({ name, start }) => ({
    name: `S3, ${name}`,
    ...(start === undefined
      ? {}
      : {
          open: async () => {
            const server = await start();
            return s3Stores(name, server.options, () => server.close());
          },
        }),
  })),
];

for (const { name, open } of kinds) {
  describe(name, () => {
    if (open === undefined) {
      const reason = `${name.slice(4)} is not installed: see test/window/s3-servers.ts`;
      test("runs the cases on a real server", (context) => {
        console.warn(reason);
        context.skip(reason);
      });
      return;
    }
    let stores: TestStores | undefined;
    let missing = "";
    beforeAll(async () => {
      stores = await open().catch((error: unknown) => {
        if (!(error instanceof Unavailable)) throw error;
        missing = error.message;
        console.warn(missing);
        return undefined;
      });
    }, 150_000);
    afterAll(() => stores?.close());
    for (const one of cases) {
      test(one.name, { timeout: 60_000 }, async (context) => {
        if (stores === undefined) return context.skip(missing);
        const world = createWorld(api, stores.next().objects);
        await one.run(world);
        const { entries } = await verify(world);
        expect(entries).toBeGreaterThanOrEqual(world.ids.size);
      });
    }
  });
}

test("there are eight cases", () => {
  expect(cases.map((one) => one.name.slice(0, 6))).toEqual(
    Array.from({ length: 8 }, (_, at) => `case ${at + 1}`),
  );
});
