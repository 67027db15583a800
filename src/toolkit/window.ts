/**
 * `hapax/window`: exactly-once writes to logs that cannot deduplicate: object storage, files, or a log of your own. It remembers
 * ids for a time (the window). A write under an id is stored once, also after lost answers, restarts and a change of writers.
 * Needs no server and no database.
 */

export { fileObjects } from "./window/file-objects.ts";
export type { ClientLog, LogExtent, ServerLog, StoredBatch } from "./window/log.ts";
export { type ObjectLog, objectLog } from "./window/object-log.ts";
export type { WindowObjects } from "./window/objects.ts";
export {
  type DedupWindow,
  openWindow,
  type WindowStats,
  type WindowWrite,
} from "./window/open-window.ts";
export type { WindowOptions } from "./window/options.ts";
export { s3Objects, type S3Options } from "./window/s3-objects.ts";
