/** Faults of the lives of a path: what was known of one stream is held against the next one. */

import type { Fault } from "./faults.ts";

const DISK = "test/lives.test.ts";
const PIPELINES = "test/processing/lives.test.ts";
const PROTOCOL = "test/protocol/extensions.test.ts";

export const lifeFaults: readonly Fault[] = [
  {
    name: "every process has the same run, so that a restored directory gives a life again",
    guarantee: "G31",
    file: "src/streams/engine/run.ts",
    find: "Number.parseInt(random.id().slice(0, 12), 16)) as RunId",
    replace: "Number.parseInt(random.id().slice(0, 0) + '1', 16)) as RunId",
    caughtBy: {
      file: DISK,
      test: "G31 a life lasts over restarts, and is never given twice, also after a restore of the directory",
    },
  },
  {
    name: "a reader of an earlier life gets data of the stream that is there now",
    guarantee: "G31",
    file: "src/streams/server/reads.ts",
    find: "if (life === undefined || life === own) return;",
    replace: "if (life !== own) return;",
    caughtBy: {
      file: PROTOCOL,
      test: "§7.9 a stream that is created anew has another life, and refuses readers of the one before",
    },
  },
  {
    name: "a position in a database is taken for one of the stream that is there now",
    guarantee: "G31",
    file: "src/client/processing/pipeline-sink.ts",
    find: "if (named === undefined || (named !== life && !isOtherIncarnation(named, life))) return [];",
    replace: 'if (named === undefined || named === life + "/") return [];',
    caughtBy: {
      file: PIPELINES,
      test: "G31 is processed from its beginning by a pipeline whose positions are in a database",
    },
  },
  {
    name: "keyed state goes on from that of the stream before",
    guarantee: "G31",
    file: "src/client/processing/state.ts",
    find: "      // What the life before has left is in parts that nothing needs, and goes.\n      this.#forget();\n",
    replace: "",
    caughtBy: { file: PIPELINES, test: "G31 has a state of its own, which begins empty" },
  },
  {
    name: "the ids of two lives are the same",
    guarantee: "G31",
    file: "src/client/processing/pipeline-attempts.ts",
    find: "encodeURI(stream)}/${life}/${offset}`;",
    replace: "encodeURI(stream)}/${life.slice(0, 0)}/${offset}`;",
    caughtBy: {
      file: PIPELINES,
      test: "G31 has ids of its own, so that no sink takes its outputs for those before",
    },
  },
  {
    name: "a reader forgets the life that it began with",
    guarantee: "G31",
    file: "src/client/pages.ts",
    find: `place.life = answer.header("stream-life") ?? life;`,
    replace: `place.life = answer.header("stream-lives") ?? life;`,
    caughtBy: {
      file: PIPELINES,
      test: "G31 ends a reader with stream_replaced, instead of going on in its middle",
    },
  },
  {
    name: "an output that emit names may be the pipeline's own input",
    guarantee: "G24",
    file: "src/client/processing/pipeline-server.ts",
    find: `return this.#borders.path("emit", options.to);`,
    replace: "return options.to;",
    caughtBy: {
      file: "test/processing/pipeline-server.test.ts",
      test: "comes before an output by emit is its own input",
    },
  },
  {
    name: "a pattern is not looked at when an output is chosen",
    guarantee: "G24",
    file: "src/client/processing/pipeline-borders.ts",
    find: "|| this.#glob?.matches(path) === true) {",
    replace: "|| this.#glob?.matches(path) === undefined) {",
    caughtBy: {
      file: "test/processing/pipeline-server.test.ts",
      test: "comes before an output by a function is its own input",
    },
  },
  {
    name: "dead letters of a stream that was deleted are those of the one that is there now",
    guarantee: "G31",
    file: "src/client/processing/dead-letter.ts",
    find: "this.#position = page.position;",
    replace: "this.#position = page.nextOffset;",
    caughtBy: {
      file: "test/processing/stored.test.ts",
      test: "G31 as one for dead letters has its own letters, for a tool that has read the one before",
    },
  },
];
