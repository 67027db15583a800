/** What is measured: loads and the servers that take part in each. */

const TEXT = "text/plain";
const JSON_TYPE = "application/json";

export const CONTENDERS = {
  bare: "bare node:http",
  "bare-json": "bare node:http + JSON.parse",
  "hapax-fsync": "hapax, files, fsync",
  "hapax-memory": "hapax, memory",
  "reference-files": "@durable-streams/server, files",
  "reference-memory": "@durable-streams/server, memory",
};

const APPENDERS = ["bare", "hapax-fsync", "hapax-memory", "reference-files", "reference-memory"];

/** One hundred records of one hundred bytes. */
export function jsonBatch() {
  const records = Array.from({ length: 100 }, (_, index) => {
    const record = {
      id: index,
      kind: "order.created",
      customer: `c-${index * 7919}`,
      amount: 12.5,
      note: "",
    };
    record.note = "n".repeat(100 - JSON.stringify(record).length);
    return JSON.stringify(record);
  });
  return `[${records.join(",")}]`;
}

function counted(count, noun) {
  return `${count.toLocaleString("en-US")} ${noun}${count === 1 ? "" : "s"}`;
}

function appendScenario(bytes, connections, streams) {
  return {
    name: `append-${bytes}-${connections}c-${streams}s`,
    kind: "append",
    title: `${bytes} B, ${counted(connections, "connection")}, ${counted(streams, "stream")}`,
    body: "x".repeat(bytes),
    contentType: TEXT,
    recordsEach: 1,
    connections,
    streams,
    contenders: APPENDERS,
  };
}

const BATCHES = {
  name: "json-batches",
  kind: "append",
  title: "bodies of 100 JSON records of 100 B, 64 connections",
  body: jsonBatch(),
  contentType: JSON_TYPE,
  recordsEach: 100,
  connections: 64,
  streams: 1,
  contenders: ["bare-json", ...APPENDERS.slice(1)],
};

/** More bytes than our tail cache holds (64 MiB) are read from the journal, fewer from memory. */
function catchUpScenario(name, title, bytes, appendBytes, readers) {
  // Filling the reference on files would take longer than everything else together.
  const contenders = ["bare", "hapax-fsync", "reference-memory"];
  return { name, kind: "catch-up", title, bytes, appendBytes, readers, passes: 1, contenders };
}

const TAIL = {
  name: "tail",
  kind: "tail",
  title: "an append every 5 ms until a live reader has it",
  everyMs: 5,
  contenders: ["hapax-fsync", "hapax-memory", "reference-files", "reference-memory"],
};

const MIB = 1024 * 1024;

/** `isQuick` keeps one of each kind and makes it short. */
export function scenariosOf(isQuick) {
  if (isQuick) {
    return [
      appendScenario(100, 1, 1),
      appendScenario(100, 64, 1),
      BATCHES,
      catchUpScenario("catch-up", "192 MiB in appends of 16 KiB, one reader", 192 * MIB, 16_384, 1),
      catchUpScenario("catch-up-8", "96 MiB in appends of 16 KiB, 8 readers", 96 * MIB, 16_384, 8),
      { ...TAIL, count: 100 },
    ];
  }
  const appends = [];
  for (const streams of [1, 1000]) {
    for (const bytes of [100, 1024]) {
      for (const connections of [1, 16, 64, 256]) {
        appends.push(appendScenario(bytes, connections, streams));
      }
    }
  }
  return [
    ...appends,
    BATCHES,
    catchUpScenario("catch-up", "256 MiB in appends of 16 KiB, one reader", 256 * MIB, 16_384, 1),
    catchUpScenario("catch-up-4", "256 MiB in appends of 16 KiB, 4 readers", 256 * MIB, 16_384, 4),
    catchUpScenario("catch-up-8", "256 MiB in appends of 16 KiB, 8 readers", 256 * MIB, 16_384, 8),
    catchUpScenario("catch-up-small", "64 MiB in appends of 1 KiB, one reader", 64 * MIB, 1024, 1),
    { ...TAIL, count: 300 },
  ];
}
