/** Faults of TLS: what would let clients in without a certificate, or use files that must not be used. */

import type { Fault } from "./faults.ts";

const WHOLE = "test/protocol/tls.test.ts";
const FILES = "src/streams/runtimes/node-tls.ts";

export const tlsFaults: readonly Fault[] = [
  {
    name: "tls: a key that others can read is taken",
    guarantee: "§13.7",
    file: FILES,
    find: "if ((found.mode & 0o777 & ~allowed) === 0) return;",
    replace: "if ((found.mode & 0o777 & ~allowed) >= 0) return;",
    caughtBy: {
      file: WHOLE,
      test: "files are checked at the start > a key of mode 420 is refused",
    },
  },
  {
    name: "tls: a file without authorities is taken",
    guarantee: "§13.7",
    file: FILES,
    find: `if (blocks.length === 0) throw new Error("there is no BEGIN CERTIFICATE in it");`,
    replace: "",
    caughtBy: {
      file: WHOLE,
      test: "files are checked at the start > every problem is named with its file: missing, empty, no PEM",
    },
  },
  {
    name: "tls: a broken file is tried and reported again and again",
    guarantee: "§13.7",
    file: "src/streams/runtimes/node-file-watch.ts",
    find: "      this.#tried = state;\n      onBroken(error);",
    replace: "      onBroken(error);",
    caughtBy: {
      file: WHOLE,
      test: "files that change > a broken or half-written file is reported once, and the old certificate stays in use",
    },
  },
  {
    name: "tls: a client without a certificate is let in",
    guarantee: "§13.7",
    file: "src/streams/runtimes/node-listener.ts",
    find: "rejectUnauthorized: isClientNeeded,",
    replace: "rejectUnauthorized: false,",
    caughtBy: {
      file: WHOLE,
      test: "with a client CA > only a connection with a certificate of that authority gets an answer",
    },
  },
  {
    name: "http2: a body that was cut counts as whole",
    guarantee: "§13.8",
    file: "src/streams/runtimes/node-http2-request.ts",
    find: "return !this.#stream.closed && !this.#stream.aborted && !this.#stream.destroyed;",
    replace: "return true;",
    caughtBy: {
      file: "test/protocol/http2.test.ts",
      test: "a body that breaks off stores nothing > a reset without an error",
    },
  },
  {
    name: "http2: a Host beside :authority is not compared",
    guarantee: "G37",
    file: "src/streams/server/request-head.ts",
    find: "if (sent !== undefined && sent.toLowerCase() !== host?.toLowerCase()) {",
    replace: 'if (sent === undefined && host === undefined && head.version === "2.0") {',
    caughtBy: {
      file: "test/protocol/http2.test.ts",
      test: "doors over HTTP/2 > a foreign page, a foreign :authority and a Host beside it are refused",
    },
  },
];
