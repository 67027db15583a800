/** Reads extents from the files of a directory for the tools. */

import { damaged } from "../journal/bytes.ts";
import type { Extent } from "../journal/extents.ts";
import type { ExtentSource } from "../journal/index-check.ts";
import type { Disk, DiskFile } from "./disk.ts";
import { parseSegmentName, segmentName } from "./segments.ts";

/** Keeps one file open: neighbouring extents are mostly in the same file. */
export class LastFile implements ExtentSource {
  readonly #disk: Disk;
  #number: number | undefined;
  #file: DiskFile | undefined;
  #names: ReadonlySet<number> | undefined;

  constructor(disk: Disk) {
    this.#disk = disk;
  }

  nameOf(segment: number): string {
    return segmentName(segment);
  }

  async read({ segment, position, bytes }: Extent): Promise<Buffer> {
    this.#names ??= new Set(
      (await this.#disk.list()).map(parseSegmentName).filter((number) => number !== undefined),
    );
    if (!this.#names.has(segment)) throw damaged("the segment is missing");
    if (this.#file === undefined || this.#number !== segment) {
      await this.close();
      this.#file = await this.#disk.open(segmentName(segment), "read");
      this.#number = segment;
    }
    return this.#file.read(position, bytes);
  }

  async close(): Promise<void> {
    await this.#file?.close();
    this.#file = undefined;
  }
}
