/** The stores of objects that the tests of the window run on. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  fileObjects,
  s3Objects,
  type S3Options,
  type WindowObjects,
} from "../../src/toolkit/window.ts";
import { FakeS3 } from "./fake-s3.ts";

/** Names a store to a process. */
export type StoreSpec = { readonly folder: string } | S3Options;

export interface TestStore {
  readonly spec: StoreSpec;
  readonly objects: WindowObjects;
}

/** A kind of store: gives an empty one each time. */
export interface TestStores {
  readonly name: string;
  next(): TestStore;
  close(): Promise<void>;
}

export function fileStores(): TestStores {
  const folders: string[] = [];
  return {
    name: "files",
    next() {
      const folder = mkdtempSync(join(tmpdir(), "hapax-window-"));
      folders.push(folder);
      return { spec: { folder }, objects: fileObjects(folder) };
    },
    close() {
      for (const folder of folders) rmSync(folder, { recursive: true, force: true });
      return Promise.resolve();
    },
  };
}

export function s3Stores(name: string, options: S3Options, stop: () => void): TestStores {
  let count = 0;
  return {
    name,
    next() {
      count += 1;
      const spec = { ...options, prefix: `log ${count}` };
      return { spec, objects: s3Objects(spec) };
    },
    close: () => Promise.resolve(stop()),
  };
}

export async function fakeStores(): Promise<TestStores> {
  const fake = await FakeS3.start();
  const stores = s3Stores("S3", { url: fake.url }, () => undefined);
  return { ...stores, close: () => fake.close() };
}
