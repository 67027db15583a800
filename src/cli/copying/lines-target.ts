/**
 * A file of JSON lines, or standard output, as the target of a copy.
 *
 *   - a file that a killed run has left is cut behind its last whole page, its section ended, and continued;
 *   - a run adds a section for a stream only if it has something new of it.
 */

import { createHash } from "node:crypto";
import { type FileHandle, open } from "node:fs/promises";
import { quote } from "../arguments.ts";
import type { Context } from "../context.ts";
import { CommandFailure, EXIT, systemCode, usageFailure } from "../failure.ts";
import { dataLines, endLine, headerLine, notOurs, readLines, storedOfLine } from "./lines.ts";
import { bytesBefore, isJsonType, type CopyPage, storedOf, type StreamFacts } from "./page.ts";
import type { TargetPlace, TargetStream } from "./server-target.ts";

/** What a file has of a stream. */
interface Known {
  readonly life: string;
  readonly end: string;
  readonly isClosed: boolean;
}

/** A section whose end is not written yet. */
interface OpenSection {
  readonly facts: StreamFacts;
  readonly at: number;
  /** Where the last whole page ends: in the source, and in the file. */
  end: string;
  to: number;
  /** How many stored bytes are whole, and their digest. */
  sha256: string;
}

export class LinesFile {
  readonly #context: Context;
  readonly #path: string;
  readonly #known = new Map<string, Known>();
  #file: FileHandle | undefined;
  #size = 0;

  constructor(context: Context, path: string) {
    this.#context = context;
    this.#path = path;
  }

  /** Opens the file and finds out what it has. */
  async open(): Promise<void> {
    if (this.#path === "-") return;
    this.#file = await openFile(this.#path);
    const cut = await this.#scan(this.#file);
    await this.#file.truncate(this.#size);
    if (cut === undefined) return;
    await this.append(endLine(cut.end, false, cut.sha256));
    this.#keep(cut.facts, cut.end, false);
  }

  async close(): Promise<void> {
    await this.#file?.sync();
    await this.#file?.close();
  }

  /** Returns the section that has no end, and leaves the size at its last whole page. */
  async #scan(file: FileHandle): Promise<OpenSection | undefined> {
    let section: OpenSection | undefined;
    let hash = createHash("sha256");
    for await (const placed of readLines(file, this.#path)) {
      const { line, number, at, to } = placed;
      if (line.kind === "begin") {
        if (section !== undefined) throw notOurs(this.#path, number);
        hash = createHash("sha256");
        const { facts } = line;
        section = { facts, at, end: facts.from, to: at, sha256: "" };
        continue;
      }
      if (section === undefined) throw notOurs(this.#path, number);
      if (line.kind === "end") {
        this.#keep(section.facts, line.end, line.closed);
        section = undefined;
        this.#size = to;
        continue;
      }
      hash.update(storedOfLine(line.bytes, section.facts.headers["content-type"]));
      if (line.offset === undefined) continue;
      Object.assign(section, { end: line.offset, to, sha256: hash.copy().digest("hex") });
    }
    if (section !== undefined) this.#size = section.to;
    return section === undefined || section.to === section.at ? undefined : section;
  }

  #keep({ path, life }: StreamFacts, end: string, isClosed: boolean): void {
    this.#known.set(path, { life, end, isClosed });
  }

  /** What the file has of a stream. Refuses another stream at the same path. */
  knownOf({ path, life }: StreamFacts): Known | undefined {
    const known = this.#known.get(path);
    if (known === undefined || known.life === life) return known;
    const message = `${this.#path} has another stream that was at ${path} before`;
    throw new CommandFailure(EXIT.refused, message, ["choose another file"]);
  }

  /** Returns the byte at which the text begins. */
  async append(text: string): Promise<number> {
    const at = this.#size;
    const bytes = Buffer.from(text);
    if (this.#file === undefined) await this.#context.stdout.write(bytes);
    for (let done = 0; this.#file !== undefined && done < bytes.length;) {
      const { bytesWritten } = await this.#file.write(bytes, done, undefined, at + done);
      done += bytesWritten;
    }
    this.#size += bytes.length;
    return at;
  }

  async end(facts: StreamFacts, end: string, isClosed: boolean, sha256: string): Promise<void> {
    await this.append(endLine(end, isClosed, sha256));
    await this.#file?.sync();
    this.#keep(facts, end, isClosed);
  }

  /** Reads a section once more; undefined for standard output. */
  async digest(at: number, contentType: string | undefined): Promise<string | undefined> {
    if (this.#file === undefined) return undefined;
    const hash = createHash("sha256");
    for await (const { line } of readLines(this.#file, this.#path, at)) {
      if (line.kind === "end") break;
      if (line.kind === "data") hash.update(storedOfLine(line.bytes, contentType));
    }
    return hash.digest("hex");
  }
}

async function openFile(path: string): Promise<FileHandle> {
  try {
    return await open(path, "r+");
  } catch (error) {
    if (systemCode(error) === "ENOENT") return open(path, "wx+", 0o600);
    throw usageFailure(`cannot open ${quote(path)} (${String(systemCode(error))})`);
  }
}

/** One stream in the file. */
export class LinesTarget implements TargetStream {
  readonly #file: LinesFile;
  readonly #facts: StreamFacts;
  readonly #hash = createHash("sha256");
  #begin = "";
  #isContinued = false;
  /** Where the section begins in the file; undefined before it has one. */
  #at: number | undefined;
  #isClosed = false;

  constructor(file: LinesFile, facts: StreamFacts) {
    this.#file = file;
    this.#facts = facts;
  }

  begin(): Promise<TargetPlace> {
    const known = this.#file.knownOf(this.#facts);
    this.#begin = known?.end ?? this.#facts.from;
    this.#isContinued = known !== undefined;
    return Promise.resolve({ end: this.#begin, isClosed: known?.isClosed ?? false });
  }

  async write({ body, end }: CopyPage): Promise<TargetPlace> {
    await this.#open();
    const type = this.#facts.headers["content-type"];
    await this.#file.append(dataLines(body, type, end));
    this.#hash.update(storedOf(body, isJsonType(type)));
    return { end, isClosed: false };
  }

  async #open(): Promise<void> {
    this.#at ??= await this.#file.append(headerLine(this.#facts, this.#begin, this.#isContinued));
  }

  async close(): Promise<void> {
    await this.#open();
    this.#isClosed = true;
  }

  async finish(end: string): Promise<void> {
    // A stream without data is a section too; one without news is not.
    if (!this.#isContinued) await this.#open();
    if (this.#at === undefined) return;
    await this.#file.end(this.#facts, end, this.#isClosed, this.#hash.digest("hex"));
  }

  range(end: number): Promise<{ readonly from: number; readonly to: number }> {
    return Promise.resolve({
      from: this.#at === undefined ? end : bytesBefore(this.#begin),
      to: end,
    });
  }

  async digest(from: number): Promise<string | undefined> {
    if (this.#at === undefined || from !== bytesBefore(this.#begin)) return undefined;
    return await this.#file.digest(this.#at, this.#facts.headers["content-type"]);
  }
}
