/**
 * Objects in a folder, one file each. A file gets its name by one call that fails if the name is taken; all of it is on the disk
 * before, and its name after. Works on Node, Bun and Deno; the modules of Node are loaded when they are needed.
 */

import { HapaxError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoint.ts";
import {
  type FileTools,
  makeFolder,
  nameIfFree,
  NAMELESS,
  removeOld,
  syncAbove,
  syncFolder,
  unlessMissing,
  writeNameless,
} from "../files/durable-names.ts";
import type { WindowObjects } from "./objects.ts";

const FOLDERS_KNOWN_MAX = 1_000;

/**
 * Returns a store of objects in a folder. Makes the folder when the first object is written. The file system needs hard links. Several
 * processes may use the folder.
 *
 * ```ts
 * import { mkdtemp } from "node:fs/promises";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { fileObjects } from "hapax/window";
 *
 * const objects = fileObjects(await mkdtemp(join(tmpdir(), "objects-")));
 * const first = await objects.create("a/1", new Uint8Array([1]));
 * const second = await objects.create("a/1", new Uint8Array([2]));
 * console.assert(first === "stored" && second === "occupied");
 * console.assert((await objects.get("a/1"))?.[0] === 1);
 * ```
 */
export function fileObjects(folder: string): WindowObjects {
  return new FileObjects(folder);
}

class FileObjects implements WindowObjects {
  readonly #root: string;
  /** Folders whose names are on the disk. */
  readonly #known = new Set<string>();
  #tools: Promise<FileTools> | undefined;
  #tidied: Promise<void> | undefined;

  constructor(root: string) {
    this.#root = root;
  }

  async create(name: string, bytes: Uint8Array): Promise<"stored" | "occupied"> {
    const tools = await this.#load();
    const { fs, path } = tools;
    const place = this.#place(tools, name);
    const folder = path.dirname(place);
    await this.#prepare(tools, folder);
    const written = await writeNameless(tools, this.#root, bytes);
    await failpoint("window.file.written");
    const isNamed = await nameIfFree(tools, written, place);
    await failpoint("window.file.named");
    await fs.rm(written, { force: true });
    // Also if the name was taken: the process that took it may have died before it synced.
    await syncFolder(tools, folder);
    return isNamed ? "stored" : "occupied";
  }

  async get(name: string): Promise<Uint8Array | undefined> {
    const tools = await this.#load();
    return await tools.fs.readFile(this.#place(tools, name)).catch(unlessMissing);
  }

  async list(prefix: string): Promise<readonly string[]> {
    const tools = await this.#load();
    const { fs, path } = tools;
    const below = prefix.slice(0, prefix.lastIndexOf("/") + 1);
    const folder = below === "" ? this.#root : this.#place(tools, below.slice(0, -1));
    const files = await fs
      .readdir(folder, { recursive: true, withFileTypes: true })
      .catch(unlessMissing);
    return (files ?? [])
      .filter((file) => file.isFile() && !file.name.startsWith(NAMELESS))
      .map((file) => path.relative(this.#root, path.join(file.parentPath ?? file.path, file.name)))
      .map((name) => name.split(path.sep).join("/"))
      .filter((name) => name.startsWith(prefix));
  }

  async remove(name: string): Promise<void> {
    const tools = await this.#load();
    await tools.fs.rm(this.#place(tools, name), { force: true });
  }

  /** Makes the folder. Another process may have made it, and died before it synced the folders above. */
  async #prepare(tools: FileTools, folder: string): Promise<void> {
    if (this.#known.has(folder)) return;
    await makeFolder(tools, folder);
    this.#tidied ??= removeOld(tools, this.#root);
    await this.#tidied;
    await syncAbove(tools, folder, tools.path.dirname(tools.path.resolve(this.#root)));
    if (this.#known.size >= FOLDERS_KNOWN_MAX) this.#known.clear();
    this.#known.add(folder);
  }

  #place({ path }: FileTools, name: string): string {
    const parts = name.split("/");
    if (!parts.every((part) => /^[a-z0-9-]+$/.test(part)))
      throw new HapaxError("invalid_request", `it is no name of an object; name=${name}`);
    return path.join(this.#root, ...parts);
  }

  #load(): Promise<FileTools> {
    return (this.#tools ??= loadTools());
  }
}

async function loadTools(): Promise<FileTools> {
  const [{ promises: fs }, path] = await Promise.all([import("node:fs"), import("node:path")]);
  return { fs, path };
}
