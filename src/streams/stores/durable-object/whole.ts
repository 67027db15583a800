/** The store of a program that leaves nothing out: its world has the rules of all books. */

import { WHOLE_BOOKS } from "../../core/whole-books.ts";
import type { DurableObjectStore, DurableObjectStoreOptions } from "./contract.ts";
import { openInObject } from "./object-store.ts";
import type { SqliteObjectStorage } from "./storage.ts";

export function openWhole(
  storage: SqliteObjectStorage,
  options: DurableObjectStoreOptions,
): Promise<DurableObjectStore> {
  return openInObject(storage, options, WHOLE_BOOKS);
}
