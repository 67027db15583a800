/** Faults in what programs of the ecosystem see. */
const ECOSYSTEM = "test/protocol/ecosystem.test.ts";
export const ecosystemFaults = [
  {
    name: "an event says the place before it as its id",
    guarantee: "G10",
    file: "src/streams/server/sse.ts",
    find: "const id = encodeEventId(formatOffset(this.#position));",
    replace: "const id = encodeEventId(formatOffset(start));",
    caughtBy: {
      file: ECOSYSTEM,
      test: "Server-Sent Events > an EventSource that comes back after any byte has every record once",
    },
  },
  {
    name: "an SSE answer says the tail as the place where it begins",
    guarantee: "G10",
    file: "src/streams/server/sse.ts",
    find: "[HEADER.nextOffset]: formatOffset(from),",
    replace: "[HEADER.nextOffset]: formatOffset(parts.engine.view(state).tail),",
    caughtBy: {
      file: ECOSYSTEM,
      test: "Server-Sent Events > the answer says in its headers where it begins and at which cursor",
    },
  },
  {
    name: "records are changed for readers that did not ask",
    guarantee: "G8",
    file: "src/streams/server/reads.ts",
    find: "return request.stateOffsets ?? parts.options.stateOffsets;",
    replace: "return request.stateOffsets ?? true;",
    caughtBy: {
      file: ECOSYSTEM,
      test: "headers.offset of the State protocol > is added for a reader that asks, and for no other",
    },
  },
];
