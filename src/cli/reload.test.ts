// SIGHUP. docs/guides/operations.md, "Change the configuration of a running server"
import { expect, test } from "vitest";

import { hapax } from "../../test/kits/cli-harness.ts";
import type { ServeOptions, StopSignal } from "./context.ts";

const FILE = "hapax.config.json";
const LIVE = new Set(["longPollMs", "corsOrigins"]);

/** Runs `serve`, writes each file in turn and sends SIGHUP after it; answers what was said to each. */
async function reloadWith(
  first: string | undefined,
  nexts: readonly (string | undefined)[],
  words: readonly string[] = [],
) {
  const files: Record<string, string> = first === undefined ? {} : { [FILE]: first };
  const rest = [...nexts];
  const said: string[] = [];
  const given: ServeOptions[] = [];
  let stop = (_signal: StopSignal): void => undefined;
  let reload = (): void => undefined;
  const step = (): void => {
    if (rest.length === 0) {
      stop("SIGTERM");
      return;
    }
    const next = rest.shift();
    if (next === undefined) delete files[FILE];
    else files[FILE] = next;
    reload();
    if (first === undefined) step(); // Nothing listens, so nothing will be said.
  };
  const result = await hapax(["serve", "--log-format", "text", ...words], {
    files,
    startServer: (options) => {
      let inForce: Readonly<Record<string, unknown>> = { ...options };
      const server = {
        url: "http://test",
        durability: "memory",
        reload: (wanted: ServeOptions) => {
          given.push(wanted);
          const members = Object.entries(wanted).filter(
            ([name, value]) =>
              LIVE.has(name) && JSON.stringify(inForce[name]) !== JSON.stringify(value),
          );
          inForce = { ...inForce, ...Object.fromEntries(members) };
          return { changed: members.map(([name]) => name) };
        },
        stop: () => Promise.resolve(),
      };
      return Promise.resolve(server);
    },
    onReady: (send) => {
      stop = send;
    },
    onReloadReady: (send) => {
      reload = send;
    },
    onOutput: () => {
      setImmediate(step);
    },
    onError: (text) => {
      if (!text.startsWith("hapax: SIGHUP: ")) return;
      said.push(text.slice("hapax: SIGHUP: ".length).trimEnd());
      setImmediate(step);
    },
  });
  return { ...result, said, given };
}

test("what changed is said with its old value", async () => {
  const { code, said, given, stderr } = await reloadWith("{}", [
    '{"longPollMs": 5, "corsOrigins": ["https://a.example"]}',
    '{"longPollMs": 5, "corsOrigins": ["https://a.example"]}',
    "{}",
  ]);
  expect(code).toBe(0);
  expect(stderr).toContain("hapax: configured by hapax.config.json\n");
  expect(said).toEqual([
    'in force now: longPollMs=5 (was 30000), corsOrigins=["https://a.example"] (was [])',
    "hapax.config.json changes nothing",
    'in force now: longPollMs=30000 (was 5), corsOrigins=[] (was ["https://a.example"])',
  ]);
  expect(given[0]).toMatchObject({ longPollMs: 5, corsOrigins: ["https://a.example"] });
});

test("what needs a restart is said each time, until it is taken back", async () => {
  const { said } = await reloadWith('{"port": 1}', [
    '{"port": 2, "keyMax": 7}',
    '{"port": 2}',
    '{"port": 1}',
  ]);
  expect(said).toEqual([
    "NOT IN FORCE, needs a restart: port=2 (is 1), keyMax=7 (is 100000)",
    "NOT IN FORCE, needs a restart: port=2 (is 1)",
    "hapax.config.json changes nothing",
  ]);
});

test("G39 a file with a mistake changes nothing, also what is right in it", async () => {
  const { said, given, code } = await reloadWith("{}", [
    '{"longPollMs": 5, "prot": 1, "keyMax": 0}',
    '{"longPollMs": ',
    undefined,
    '{"longPollMs": 5}',
  ]);
  expect(said).toEqual([
    "NOTHING WAS CHANGED: 2 options are not valid\n" +
      '  "prot" in hapax.config.json is no option; did you mean "port"?\n' +
      "  keyMax in hapax.config.json is 0; allowed: a whole number from 1 to 10000000",
    expect.stringContaining("NOTHING WAS CHANGED: hapax.config.json is not JSON"),
    'NOTHING WAS CHANGED: cannot read "hapax.config.json" (ENOENT)',
    "in force now: longPollMs=5 (was 30000)",
  ]);
  expect([given.length, code]).toEqual([1, 0]);
});

test("a flag still wins over the file after a reload", async () => {
  const { said } = await reloadWith("{}", ['{"longPollMs": 5}'], ["--long-poll-ms", "9"]);
  expect(said).toEqual(["hapax.config.json changes nothing"]);
});

test("without a file nothing listens to SIGHUP", async () => {
  const { said, given, code } = await reloadWith(undefined, ['{"longPollMs": 5}']);
  expect([said, given, code]).toEqual([[], [], 0]);
});
