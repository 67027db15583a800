/**
 * Files that a running server reads again when they change: certificates, keys.
 *
 *   - a change is found by looking at the files once in a while. A listener of the file system would be called for every write to
 *     the directory, which may be that of the streams, and is not there on every kind of mount;
 *   - files that cannot be used are tried again when they have not changed since the last look, and are then reported once. Until
 *     others come, what was loaded before stays in use;
 *   - files that change at every look are tried and reported all the same, after a few looks.
 */

import { stat } from "node:fs/promises";

export interface WatchedFiles {
  readonly paths: readonly string[];
  /** How often to look, in milliseconds. */
  readonly everyMs: number;
  /**
   * Whether files are used only when they have not changed since the last look: several files may come one after the other. Otherwise
   * a change is used at once.
   */
  readonly isPatient: boolean;
  /** Loads the files and puts them in force. Throws if they cannot be used. */
  readonly load: () => Promise<void>;
  /** Called with what `load` threw. */
  readonly onBroken: (error: unknown) => void;
}

/** Looks at files that change each time, after which they are taken as they are. */
const RESTLESS_LOOKS_MAX = 5;

export class FileWatch {
  readonly #files: WatchedFiles;
  readonly #timer: NodeJS.Timeout;
  /** The state of the files that was loaded or reported last, and the one that was seen last. */
  #tried: string;
  #seen: string;
  /** Looks in a row that found changed files and could not use them. */
  #restlessLooks = 0;
  #isLooking = false;

  /** `state`: that of the files before they were loaded, so that a change since then is not missed. */
  constructor(files: WatchedFiles, state: string) {
    this.#files = files;
    this.#tried = state;
    this.#seen = state;
    this.#timer = setInterval(() => {
      if (this.#isLooking) return;
      this.#isLooking = true;
      void this.#look().finally(() => (this.#isLooking = false));
    }, files.everyMs);
    this.#timer.unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }

  async #look(): Promise<void> {
    const { paths, isPatient, load, onBroken } = this.#files;
    const state = await fileState(paths);
    const isSame = state === this.#seen;
    this.#seen = state;
    this.#restlessLooks = isSame ? 0 : this.#restlessLooks + 1;
    if (state === this.#tried) return;
    // Files that still change are being written, or the second one has yet to come. But not for long.
    const isSettled = isSame || this.#restlessLooks === RESTLESS_LOOKS_MAX;
    if (isPatient && !isSettled) return;
    try {
      await load();
      this.#tried = state;
      this.#restlessLooks = 0;
    } catch (error) {
      if (!isSettled) return;
      this.#tried = state;
      onBroken(error);
    }
  }
}

/** A text that changes when one of the files does. Links are followed, so it also changes when a link does. */
export async function fileState(paths: readonly string[]): Promise<string> {
  const states = paths.map(async (path) => {
    const found = await stat(path, { bigint: true }).catch(() => undefined);
    if (found === undefined) return "missing";
    return `${found.dev} ${found.ino} ${found.size} ${found.mtimeNs} ${found.ctimeNs}`;
  });
  return (await Promise.all(states)).join("\n");
}
