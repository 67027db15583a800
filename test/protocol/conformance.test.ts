// PROTOCOL.md §1
import { openMemoryStore } from "../../src/streams/stores/memory.ts";
import { runPublishedSuite } from "./published-suite.ts";

runPublishedSuite("memory", async () => openMemoryStore());
