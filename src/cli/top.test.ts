import { afterEach, expect, test } from "vitest";
import { hapax, startServer, stopServers, type TestServer } from "../../test/kits/cli-harness.ts";
import { EXIT } from "./failure.ts";

afterEach(stopServers);

/** A server whose figures grow with each look. `refuse` says which looks get no answer, and which a refusal. */
function startFigures(refuse: (look: number) => "lost" | 403 | 502 | undefined = () => undefined) {
  let looks = 0;
  return startServer(({ url }, response) => {
    if (url.pathname === "/_hapax/health") {
      response.end('{"writes":"open"}');
      return;
    }
    looks += 1;
    const refused = refuse(looks);
    if (refused === "lost") response.destroy();
    else if (refused !== undefined) {
      const problem = { code: "not_allowed", detail: "no grant allows it: action=observe" };
      response.writeHead(refused, { "content-type": "application/problem+json" });
      response.end(JSON.stringify(problem));
    } else response.end(figures(looks));
  });
}

const figures = (look: number): string =>
  [
    `hapax_appends_total{outcome="accepted"} ${look * 500}`,
    `hapax_appends_total{outcome="gap"} 3`,
    `hapax_duplicates_total{by="key"} ${look * 2}`,
    `hapax_duplicates_total{by="epoch"} 1`,
    `hapax_commit_seconds_bucket{le="0.001"} ${look * 10}`,
    `hapax_commit_seconds_bucket{le="+Inf"} ${look * 10}`,
    'hapax_info{durability="fsync"} 1',
    "hapax_live_readers 4",
    `hapax_file_bytes ${3 * 1024 * 1024}`,
  ].join("\n");

const top = (server: TestServer, ...words: readonly string[]) =>
  hapax(["top", "--url", server.url, ...words]);

test("in a pipe, top prints a plain line for each look, with the rates since the look before", async () => {
  const result = await top(await startFigures(), "--count", "2", "--every", "5");
  const line = (duplicates: number): string =>
    `writes open  appends/s 100  duplicates ${duplicates}  fenced 0  gaps 3  sync p50 0.5 ms  p99 1.0 ms  readers 4  disk 3.0 MiB  lag 0 B`;
  expect(result.stdout).toBe(`${line(5)}\n${line(7)}\n`);
  expect([result.code, result.waits]).toEqual([EXIT.done, [5000, 5000]]);
});

test("top prints JSON lines on request", async () => {
  const result = await top(await startFigures(), "--count", "1", "--json");
  expect(JSON.parse(result.stdout)).toMatchObject({
    writes: "open",
    durability: "fsync",
    appendsPerSecond: 500,
    duplicatesPerSecond: 2,
    duplicates: 5,
    gaps: 3,
    syncSlowMs: 0.99,
    readers: 4,
  });
});

test("on a terminal top draws a picture anew, and gives the cursor back", async () => {
  const world = { isTerminal: true, env: { NO_COLOR: "1" } };
  const server = await startFigures();
  const { stdout } = await hapax(["top", "--url", server.url, "--count", "2"], world);
  expect(stdout.split("\u001b[H\u001b[J")).toHaveLength(3);
  expect(stdout).toMatch(/appends\/s +500 +██/);
  expect(stdout).toContain("duplicates stopped  5 (2/s)");
  expect(stdout.endsWith("\u001b[?25h")).toBe(true);
});

test("on a terminal the picture says that a server is away, and that its figures are the last ones", async () => {
  const server = await startFigures((look) => (look === 3 ? "lost" : undefined));
  const world = { isTerminal: true, env: { NO_COLOR: "1" } };
  const { stdout, stderr } = await hapax(["top", "--url", server.url, "--count", "2"], world);
  const [, first = "", away = "", back = ""] = stdout.split("\u001b[H\u001b[J");
  expect(first).toContain("writes open");
  expect([away.includes("writes open"), stderr]).toEqual([false, ""]);
  expect(away).toContain("no answer, trying again");
  expect(away).toContain("duplicates stopped  5");
  expect(back).toContain("writes open");
});

test("a line that is too long for the terminal is cut off, and the terminal wraps again at the end", async () => {
  const server = await startFigures();
  const words = ["top", "--url", server.url, "--count", "1"];
  const { stdout } = await hapax(words, { isTerminal: true });
  expect(stdout.indexOf("\u001b[?7l")).toBeLessThan(stdout.indexOf("hapax top"));
  expect(stdout.lastIndexOf("\u001b[?7h")).toBeGreaterThan(stdout.lastIndexOf("transactions"));
  const away = await startFigures(() => "lost");
  const none = await hapax(["top", "--url", away.url], { isTerminal: true });
  expect(none.stdout).not.toContain("\u001b[2J");
});

test("Ctrl-C ends top well, and gives the cursor back", async () => {
  const server = await startFigures();
  let send: (signal: "SIGINT") => void = () => undefined;
  const result = await hapax(["top", "--url", server.url], {
    isTerminal: true,
    onReady: (give) => (send = give),
    onOutput: (text) => {
      if (text.includes("appends/s")) send("SIGINT");
    },
  });
  expect(result.code).toBe(EXIT.done);
  expect(result.stdout.endsWith("\u001b[?25h")).toBe(true);
});

test("a server that goes away is waited for; one that was never there, or refuses, ends top", async () => {
  const away = await top(
    await startFigures((look) => (look === 2 ? "lost" : undefined)),
    "--count",
    "1",
  );
  expect(away.code).toBe(EXIT.done);
  expect(away.stderr).toContain("no answer, trying again");
  expect(away.stdout).toContain("appends/s 500");
  const proxied = await top(
    await startFigures((look) => (look === 2 ? 502 : undefined)),
    "--count",
    "1",
  );
  expect([proxied.code, proxied.stdout.includes("appends/s 500")]).toEqual([EXIT.done, true]);
  const never = await top(await startFigures(() => "lost"), "--count", "1");
  expect([never.code, never.stdout]).toEqual([EXIT.unreachable, ""]);
  const refused = await top(await startFigures((look) => (look === 1 ? undefined : 403)));
  expect(refused.code).toBe(EXIT.refused);
  expect(refused.stderr).toContain("action=observe");
});
