/**
 * A disk in memory that loses power, fails and fills up as a test wants it. The same seed gives the same run.
 *
 * Calls take no time, but they end in an order of their own: the seed chooses which running call ends next. A power
 * cut keeps, loses or garbles each unsynced sector. It may undo a creation, rename or removal without a
 * `syncDirectory` after it. A killed process leaves the page cache as it is, and nothing in it becomes more durable.
 * After either, the running calls never end.
 */

import type { Disk, DiskFile, DiskMode } from "../../src/streams/stores/file/disk.ts";
import { createSeededRandom, type SeededRandom } from "../../src/testing/seeded-random.ts";
import { ioError, SimulatedFile } from "./simulated-file.ts";

/**
 * What goes wrong at one call. `EIO`: a write is done in part; a sync loses what it should have synced, and the next
 * one succeeds. `ENOSPC`: nothing is done; only calls that need room get it. `short`: a write is done in part, and
 * there is no room for the rest.
 */
export type DiskFault = "EIO" | "ENOSPC" | "short";

/** The calls of the disk port. */
export type DiskCallKind =
  | "list"
  | "open"
  | "rename"
  | "remove"
  | "syncDirectory"
  | "size"
  | "read"
  | "write"
  | "sync"
  | "close";

/** One call to the disk, as its log shows it. */
export interface DiskCall {
  readonly kind: DiskCallKind;
  /** The file and the range: `journal.seg 4096+512`. */
  readonly what: string;
}

/** A disk in memory that can be stopped, filled and broken at any call. */
export interface SimulatedDisk extends Disk {
  /** The calls that have begun, in order. */
  readonly log: readonly DiskCall[];
  /** Resolves when the disk has stopped: by `stopAt`, `crash` or `kill`. */
  readonly stopped: Promise<void>;
  /** Stops the disk when the call with this number, counted from 1, would end. The call stays unfinished. */
  stopAt(call: number): void;
  /** Makes the call with this number fail, if its kind can. */
  failAt(call: number, fault: DiskFault): void;
  /** Limits the bytes that all files may have together from now on. */
  setCapacity(bytes: number): void;
  /** Stops this disk and returns the one that a power cut leaves. */
  crash(): SimulatedDisk;
  /** Stops this disk and returns the one that a killed process leaves to the next. */
  kill(): SimulatedDisk;
}

type DirectoryChange =
  | { readonly kind: "created"; readonly name: string; readonly file: SimulatedFile }
  | { readonly kind: "removed"; readonly name: string; readonly file: SimulatedFile }
  | {
      readonly kind: "renamed";
      readonly name: string;
      readonly to: string;
      readonly file: SimulatedFile;
    };

interface Directory {
  readonly names: Map<string, SimulatedFile>;
  readonly durableNames: Map<string, SimulatedFile>;
  readonly changes: readonly DirectoryChange[];
}

type Ending = "power cut" | "kill";

/** A running call. */
interface Operation {
  readonly call: number;
  readonly kind: DiskCallKind;
  /** Does it all, or throws. */
  readonly perform: (fault: DiskFault | undefined) => unknown;
  /** Does a part of it, because the power went or the process was killed in the middle. */
  readonly performPart: (ending: Ending) => void;
  readonly resolve: (value: unknown) => void;
  readonly reject: (reason: unknown) => void;
}

/** Creates an empty disk. */
export function createSimulatedDisk(seed: number): SimulatedDisk {
  const empty = { names: new Map(), durableNames: new Map(), changes: [] };
  return new Simulation(createSeededRandom(seed), empty);
}

class Simulation implements SimulatedDisk {
  readonly log: DiskCall[] = [];
  readonly stopped: Promise<void>;
  readonly #random: SeededRandom;
  #names: Map<string, SimulatedFile>;
  #durableNames: Map<string, SimulatedFile>;
  #changes: DirectoryChange[];
  readonly #underWay: Operation[] = [];
  readonly #faults = new Map<number, DiskFault>();
  #stopAt = Infinity;
  #capacity = Infinity;
  #isStopped = false;
  #isRunning = false;
  #isGone = false;
  #stop: () => void = () => undefined;

  constructor(random: SeededRandom, directory: Directory) {
    this.#random = random;
    this.#names = directory.names;
    this.#durableNames = directory.durableNames;
    this.#changes = [...directory.changes];
    this.stopped = new Promise((resolve) => {
      this.#stop = resolve;
    });
  }

  stopAt(call: number): void {
    this.#stopAt = call;
  }

  failAt(call: number, fault: DiskFault): void {
    this.#faults.set(call, fault);
  }

  setCapacity(bytes: number): void {
    this.#capacity = bytes;
  }

  list(): Promise<readonly string[]> {
    return this.#begin("list", "", (fault) => {
      if (fault === "EIO") throw ioError("EIO", "scandir");
      return shuffled([...this.#names.keys()], this.#random);
    });
  }

  open(name: string, mode: DiskMode): Promise<DiskFile> {
    return this.#begin("open", `${name} ${mode}`, (fault) => {
      if (fault === "EIO") throw ioError("EIO", "open", name);
      const existing = this.#names.get(name);
      if (mode !== "create") {
        if (existing === undefined) throw ioError("ENOENT", "open", name);
        return this.#handle(existing, name, mode);
      }
      if (existing !== undefined) throw ioError("EEXIST", "open", name);
      if (fault !== undefined) throw ioError("ENOSPC", "open", name);
      const file = new SimulatedFile();
      this.#names.set(name, file);
      this.#changes.push({ kind: "created", name, file });
      return this.#handle(file, name, mode);
    });
  }

  rename(from: string, to: string): Promise<void> {
    return this.#begin("rename", `${from} ${to}`, (fault) => {
      if (fault !== undefined) throw ioError(fault === "EIO" ? "EIO" : "ENOSPC", "rename", from);
      const file = this.#names.get(from);
      if (file === undefined) throw ioError("ENOENT", "rename", from);
      this.#names.delete(from);
      this.#names.set(to, file);
      this.#changes.push({ kind: "renamed", name: from, to, file });
    });
  }

  remove(name: string): Promise<void> {
    return this.#begin("remove", name, (fault) => {
      if (fault === "EIO") throw ioError("EIO", "unlink", name);
      const file = this.#names.get(name);
      if (file === undefined) throw ioError("ENOENT", "unlink", name);
      this.#names.delete(name);
      this.#changes.push({ kind: "removed", name, file });
    });
  }

  syncDirectory(): Promise<void> {
    return this.#begin("syncDirectory", "", (fault) => {
      if (fault === "EIO") throw ioError("EIO", "fsync");
      this.#durableNames = new Map(this.#names);
      this.#changes = [];
    });
  }

  crash(): SimulatedDisk {
    this.#cut("power cut");
    const random = this.#random;
    const names = new Map(this.#durableNames);
    // File systems mostly keep the order of such changes. A careful program does not rely on that.
    const kept = random.below(2) === 0 ? random.below(this.#changes.length + 1) : undefined;
    for (const [at, change] of this.#changes.entries()) {
      if (kept === undefined ? random.below(2) === 0 : at < kept) applyTo(names, change);
    }
    for (const file of new Set(names.values())) file.losePower(random);
    return this.#next({ names, durableNames: new Map(names), changes: [] });
  }

  kill(): SimulatedDisk {
    this.#cut("kill");
    return this.#next({
      names: this.#names,
      durableNames: this.#durableNames,
      changes: this.#changes,
    });
  }

  #next(directory: Directory): SimulatedDisk {
    const next = new Simulation(this.#random, directory);
    next.setCapacity(this.#capacity);
    return next;
  }

  /** Ends everything: no call begins or ends any more, and running calls were done in part. */
  #cut(ending: Ending): void {
    // The files move to the next disk, and there is only one.
    if (this.#isGone) throw new Error("this disk has been crashed or killed before");
    this.#isGone = true;
    this.#halt();
    for (const operation of this.#underWay.splice(0)) operation.performPart(ending);
  }

  #halt(): void {
    this.#isStopped = true;
    this.#stop();
  }

  #handle(file: SimulatedFile, name: string, mode: DiskMode): DiskFile {
    let isOpen = true;
    const begin = <T>(
      kind: DiskCallKind,
      what: string,
      perform: (fault: DiskFault | undefined) => T,
      performPart?: (ending: Ending) => void,
    ): Promise<T> =>
      this.#begin(
        kind,
        what === "" ? name : `${name} ${what}`,
        (fault) => {
          if (!isOpen) throw ioError("EBADF", kind, name);
          if (fault === "EIO" && kind !== "write" && kind !== "sync" && kind !== "close") {
            throw ioError("EIO", kind, name);
          }
          return perform(fault);
        },
        performPart,
      );
    return {
      size: () => begin("size", "", () => file.size),
      read: (position, length) =>
        begin("read", `${position}+${length}`, () => file.read(position, length)),
      write: (buffers, position) => {
        const bytes = Buffer.concat(buffers);
        return begin(
          "write",
          `${position}+${bytes.length}`,
          (fault) => {
            if (mode === "read") throw ioError("EBADF", "write", name);
            this.#write(file, name, bytes, position, fault);
            if (mode === "durable") file.syncRange(position, position + bytes.length);
          },
          (ending) => {
            // The kernel copies from front to back, then waits for the platter, which takes sectors in any order.
            const isCopying = ending === "kill" && this.#random.below(2) === 0;
            const part = isCopying ? this.#partOf(bytes.length) : bytes.length;
            file.write(bytes.subarray(0, part), position);
          },
        );
      },
      sync: () =>
        begin("sync", "", (fault) => {
          if (fault !== "EIO") return file.sync();
          file.forget();
          throw ioError("EIO", "fdatasync", name);
        }),
      close: () =>
        begin("close", "", (fault) => {
          isOpen = false;
          if (fault === "EIO") throw ioError("EIO", "close", name);
        }),
    };
  }

  #write(
    file: SimulatedFile,
    name: string,
    bytes: Buffer,
    position: number,
    fault: DiskFault | undefined,
  ): void {
    const room = Math.max(0, this.#room(file) - position);
    if (fault === undefined && bytes.length <= room) {
      file.write(bytes, position);
      return;
    }
    const part = fault === "ENOSPC" ? 0 : this.#partOf(Math.min(room, bytes.length));
    file.write(bytes.subarray(0, part), position);
    throw ioError(fault === "EIO" ? "EIO" : "ENOSPC", "write", name);
  }

  /** Returns how long this file may get. */
  #room(file: SimulatedFile): number {
    if (this.#capacity === Infinity) return Infinity;
    let others = 0;
    for (const other of new Set(this.#names.values())) if (other !== file) others += other.size;
    return Math.max(file.size, this.#capacity - others);
  }

  #partOf(length: number): number {
    return this.#random.below(length + 1);
  }

  #begin<T>(
    kind: DiskCallKind,
    what: string,
    perform: (fault: DiskFault | undefined) => T,
    performPart: (ending: Ending) => void = () => {
      this.#performPerhaps(perform);
    },
  ): Promise<T> {
    if (this.#isStopped) return new Promise<T>(() => undefined);
    this.log.push({ kind, what });
    const call = this.log.length;
    return new Promise<T>((resolve, reject) => {
      // The queue holds calls of every type. Each gets the result of its own `perform`.
      const settle = resolve as (value: unknown) => void;
      this.#underWay.push({ call, kind, perform, performPart, resolve: settle, reject });
      if (this.#isRunning) return;
      this.#isRunning = true;
      void this.#run();
    });
  }

  #performPerhaps(perform: (fault: undefined) => unknown): void {
    if (this.#random.below(2) === 0) return;
    try {
      perform(undefined);
    } catch {
      // The call would have failed, but no caller is left to get the error.
    }
  }

  async #run(): Promise<void> {
    while (this.#underWay.length > 0) {
      // Other tasks get the chance to make their calls too, so that there is an order to choose.
      for (let turns = 1 + this.#random.below(6); turns > 0; turns -= 1) await Promise.resolve();
      if (this.#isStopped) return;
      const chosen = this.#random.below(this.#underWay.length);
      const operation = this.#underWay[chosen];
      if (operation === undefined) break;
      if (operation.call >= this.#stopAt) {
        this.#halt();
        return;
      }
      this.#underWay.splice(chosen, 1);
      try {
        operation.resolve(operation.perform(this.#faults.get(operation.call)));
      } catch (error) {
        operation.reject(error);
      }
    }
    this.#isRunning = false;
  }
}

function applyTo(names: Map<string, SimulatedFile>, change: DirectoryChange): void {
  const { kind, name, file } = change;
  if (kind === "created") {
    names.set(name, file);
    return;
  }
  // A change that this one needs may have been undone. Then this one is undone too.
  if (names.get(name) !== file) return;
  names.delete(name);
  if (kind === "renamed") names.set(change.to, file);
}

function shuffled(names: string[], random: SeededRandom): readonly string[] {
  for (let at = names.length - 1; at > 0; at -= 1) {
    const other = random.below(at + 1);
    const name = names[at];
    const swapped = names[other];
    if (name === undefined || swapped === undefined) break;
    names[at] = swapped;
    names[other] = name;
  }
  return names;
}
