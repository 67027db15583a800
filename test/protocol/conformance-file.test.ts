// PROTOCOL.md §1
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";
import { openFileStore } from "../../src/streams/stores/file.ts";
import { runPublishedSuite } from "./published-suite.ts";

const directory = mkdtempSync(join(tmpdir(), "hapax-conformance-"));

// Small files and frequent snapshots, so that rolls and compaction happen under the suite.
runPublishedSuite("file", () =>
  openFileStore(directory, { segmentBytes: 1 << 20, snapshotBytes: 1 << 20 }),
);

afterAll(() => {
  rmSync(directory, { recursive: true, force: true });
});
