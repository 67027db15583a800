/** A file of JSON lines, as the source of a copy. It is read whole before anything of it is stored. */

import { createHash } from "node:crypto";
import { type FileHandle, open } from "node:fs/promises";
import { joinBytes } from "../../base/bytes.ts";
import { quote } from "../arguments.ts";
import { CommandFailure, EXIT, systemCode, usageFailure } from "../failure.ts";
import { notOurs, readLines, storedOfLine } from "./lines.ts";
import {
  bodyFromStored,
  bytesBefore,
  isJsonType,
  type CopyPage,
  type SourceStream,
  type StreamFacts,
} from "./page.ts";

/** Opens a file, and refuses one that is cut or was changed. */
export async function openLines(
  path: string,
): Promise<{ readonly file: FileHandle; readonly sections: readonly SourceStream[] }> {
  const file = await openFile(path);
  try {
    return { file, sections: await sectionsOf(file, path) };
  } catch (error) {
    await file.close();
    throw error;
  }
}

async function openFile(path: string): Promise<FileHandle> {
  if (path === "-") throw usageFailure("a copy reads its lines twice: give a file, not -");
  try {
    return await open(path, "r");
  } catch (error) {
    const code = systemCode(error);
    if (code === undefined) throw error;
    throw usageFailure(`cannot open ${quote(path)} (${code})`);
  }
}

async function sectionsOf(file: FileHandle, path: string): Promise<SourceStream[]> {
  const sections: SourceStream[] = [];
  let open: { facts: StreamFacts; at: number } | undefined;
  let hash = createHash("sha256");
  let isWhole = true;
  for await (const { line, number, at } of readLines(file, path)) {
    if (line.kind === "begin" ? open !== undefined : open === undefined) {
      throw notOurs(path, number);
    }
    if (line.kind === "begin") {
      open = { facts: line.facts, at };
      hash = createHash("sha256");
      isWhole = true;
    } else if (line.kind === "data" && open !== undefined) {
      hash.update(storedOfLine(line.bytes, open.facts.headers["content-type"]));
      isWhole = line.offset !== undefined;
    } else if (line.kind === "end" && open !== undefined) {
      if (!isWhole || hash.digest("hex") !== line.sha256) throw changed(path, number);
      const { end, closed, sha256 } = line;
      sections.push(new Section(file, path, { ...open, end, closed, sha256 }));
      open = undefined;
    }
  }
  if (open !== undefined || sections.length === 0) throw cut(path);
  return sections;
}

interface SectionFacts {
  readonly facts: StreamFacts;
  readonly at: number;
  readonly end: string;
  readonly closed: boolean;
  readonly sha256: string;
}

class Section implements SourceStream {
  readonly facts: StreamFacts;
  readonly #file: FileHandle;
  readonly #path: string;
  readonly #section: SectionFacts;

  constructor(file: FileHandle, path: string, section: SectionFacts) {
    this.#file = file;
    this.#path = path;
    this.#section = section;
    this.facts = { ...section.facts, tail: section.end };
  }

  async *pages(): AsyncGenerator<CopyPage> {
    const type = this.facts.headers["content-type"];
    const { at, end, closed } = this.#section;
    let pieces: Uint8Array[] = [];
    for await (const { line } of readLines(this.#file, this.#path, at)) {
      if (line.kind === "end") break;
      if (line.kind !== "data") continue;
      pieces.push(storedOfLine(line.bytes, type));
      if (line.offset === undefined) continue;
      yield {
        body: bodyFromStored(joinBytes(pieces), isJsonType(type)),
        end: line.offset,
        isClosed: false,
      };
      pieces = [];
    }
    yield { body: new Uint8Array(0), end, isClosed: closed };
  }

  digest(from: number, to: number): Promise<string | undefined> {
    const { facts, end, sha256 } = this.#section;
    const isWhole = from === bytesBefore(facts.from) && to === bytesBefore(end);
    return Promise.resolve(isWhole ? sha256 : undefined);
  }

  earliest(): Promise<number> {
    return Promise.resolve(bytesBefore(this.facts.from));
  }
}

function cut(path: string): CommandFailure {
  return new CommandFailure(EXIT.refused, `${path} is cut: its last stream has no end`, [
    "nothing was stored; run the copy that writes the file again, it goes on where it was",
  ]);
}

function changed(path: string, number: number): CommandFailure {
  const line = String(number);
  return new CommandFailure(EXIT.refused, `${path} was changed: see line ${line}`, [
    `the stream that ends at line ${line} has another SHA-256 than its data; nothing was stored`,
  ]);
}
