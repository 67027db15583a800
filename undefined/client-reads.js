/** Faults of readers: what would be given twice, left out, or asked for without its cursor. */
const STORMS = "test/client/reads-storms.test.ts";
const FOLLOW = "test/client/reads-follow.test.ts";
const PATIENCE = "test/client/reads-patience.test.ts";
const POSITIONS = "test/client/reads-positions.test.ts";
const PAGES = "src/client/pages.ts";
export const clientReadFaults = [
  {
    name: "a reader is given data without its control event",
    guarantee: "G20",
    file: "src/client/live-sse.ts",
    find: `if (event === "data") this.#hold(data);`,
    replace: `if (event === "data" && data === "-") this.#hold(data);
      else if (event === "data") {
        const { contentType, offset } = this.#place;
        const flags = { upToDate: false, closed: false, isBase64: this.isBase64 };
        yield new LazyBatch<T>({ contentType, body: [data], offset, nextOffset: offset, ...flags });
      }`,
    caughtBy: {
      file: STORMS,
      test: "an answer that is cut or ended at every byte gives each record once",
    },
  },
  {
    name: "a reader goes on where a page began that does not reach the tail",
    guarantee: "G20",
    file: PAGES,
    find: "place.offset = nextOffset;",
    replace: "place.offset = batch.upToDate ? nextOffset : offset;",
    caughtBy: {
      file: POSITIONS,
      test: "asks for a page when it is wanted, and ends at the tail",
    },
  },
  {
    name: "a page that was cut is taken for a whole one",
    guarantee: "G20",
    file: PAGES,
    find: "  for await (const piece of answer.chunks()) {",
    replace: `  const whole = async function* (): AsyncGenerator<Uint8Array> {
    try {
      yield* answer.chunks();
    } catch {}
  };
  for await (const piece of whole()) {`,
    caughtBy: {
      file: "test/client/short-pages.test.ts",
      test: "a page whose connection breaks is read again, also from a server that tells no lives",
    },
  },
  {
    name: "a reader forgets its cursor",
    guarantee: "G20",
    file: PAGES,
    find: "place.cursor = cursor ?? place.cursor;",
    replace: `place.cursor = cursor === "" ? cursor : undefined;`,
    caughtBy: {
      file: FOLLOW,
      test: "is echoed as it was given, also from control events",
    },
  },
  {
    name: "a reader asks for now again after a lost connection",
    guarantee: "G20",
    file: PAGES,
    find: "place.offset = nextOffset;",
    replace: `place.offset = offset === "now" ? offset : nextOffset;`,
    caughtBy: {
      file: FOLLOW,
      test: "at now gives what comes from then on, also over a lost connection",
    },
  },
  {
    name: "a reader lets itself be moved back",
    guarantee: "G20",
    file: PAGES,
    find: "if (isPlace && nextOffset < offset) {",
    replace: `if (isPlace && nextOffset < offset && offset === "") {`,
    caughtBy: {
      file: PATIENCE,
      test: "a server that answers for an earlier place is refused, in every way of reading",
    },
  },
  {
    name: "a position is saved before the consumer is done",
    guarantee: "G20",
    file: "src/client/follow.ts",
    find: `    yield batch;
    await position?.save(batch.position);`,
    replace: `    await position?.save(batch.position);
    yield batch;`,
    caughtBy: {
      file: POSITIONS,
      test: "is saved when the consumer has dealt with a batch and asks for more",
    },
  },
  {
    name: "a page that was shortened on its way is taken as whole",
    guarantee: "G20",
    file: "src/client/pages.ts",
    find: "if (stored > 0 && body.length",
    replace: "if (stored > 1e9 && body.length",
    caughtBy: {
      file: "test/client/short-pages.test.ts",
      test: "a page of text/plain that was cut anywhere is asked for again",
    },
  },
  {
    name: "a batch of text ends inside of a character",
    guarantee: "G20",
    file: "src/client/batches.ts",
    find: "const isHeld = !isLast && goesOn && batch.isCut",
    replace: "const isHeld = isLast && goesOn && batch.isCut && held === next",
    caughtBy: {
      file: "test/client/text-seams.test.ts",
      test: "a live reader gets each character whole, wherever its bytes were cut",
    },
  },
];
