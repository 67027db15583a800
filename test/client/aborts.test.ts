// Calls that are given up: over at once, and with nothing left that would keep a process alive.
import { spawnSync } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { expect, test } from "vitest";
import { bundle } from "../../scripts/size.mjs";
import { connect } from "../../src/client/client.ts";
import { deferred } from "../../src/client/deferred.ts";
import type { Stream } from "../../src/client/stream.ts";
import { createVirtualClock } from "../../src/testing/testing.ts";
import { turn } from "../kits/watch.ts";

interface Call {
  readonly name: string;
  readonly run: (stream: Stream, signal: AbortSignal) => Promise<unknown>;
}

const CALLS: readonly Call[] = [
  { name: "append with a key", run: (stream, signal) => stream.append(1, { key: "k", signal }) },
  { name: "append", run: (stream, signal) => stream.append(1, { signal }) },
  { name: "close", run: (stream, signal) => stream.close(1, { signal }) },
  { name: "resume", run: (stream, signal) => stream.resume("p", { signal }) },
  { name: "create", run: (stream, signal) => stream.create({ isNew: true, signal }) },
  {
    name: "create with keys",
    run: (stream, signal) => stream.create({ keyWindowSeconds: 60, signal }),
  },
  { name: "fork", run: (stream, signal) => stream.fork("/v1/stream/f", { signal }) },
  { name: "update", run: (stream, signal) => stream.update(() => 1, { signal }) },
];

/** As a client knows a server of ours: by the refusal of an empty append. */
const OURS = JSON.stringify({ type: "urn:hapax:error:invalid_request" });
const HEAD = { "Content-Type": "application/json", "Stream-Next-Offset": "1_1" };

for (const { name, run } of CALLS) {
  // Each request of the call in turn is the one that gets no answer: it is given up at every stage.
  for (let answered = 0; answered < 4; answered += 1) {
    test(`${name} that is given up after ${answered} answers is over at once, and so are its requests`, async () => {
      const clock = createVirtualClock();
      const open = new Set<AbortSignal>();
      let left = answered;
      const fetcher: typeof fetch = (_url, init) => {
        const { method, signal, body } = init ?? {};
        if ((left -= 1) >= 0) {
          if (method === "HEAD" && name !== "resume") {
            return Promise.resolve(new Response(null, { headers: HEAD }));
          }
          // Asked whose server it is; all else is refused for now, and tried again.
          const isAsking = method === "POST" && !(body instanceof Uint8Array);
          const busy = { status: 503, headers: { "Retry-After": "7" } };
          return Promise.resolve(
            isAsking ? new Response(OURS, { status: 400 }) : new Response(null, busy),
          );
        }
        return new Promise((_resolve, reject) => {
          if (!signal) return;
          open.add(signal);
          signal.addEventListener("abort", () => {
            open.delete(signal);
            reject(new Error("aborted"));
          });
        });
      };
      const stream = connect("http://stage.test/v1/stream/s", { fetch: fetcher, clock });
      const stop = new AbortController();
      // The caller gets just what it gave, which need not be an error.
      const reason = answered % 2 === 0 ? new Error("given up") : "given up";
      let ending: unknown;
      run(stream, stop.signal).catch((error: unknown) => {
        ending = error;
      });
      for (let turns = 0; turns < 10; turns += 1) await turn();
      expect(ending).toBeUndefined();
      stop.abort(reason);
      for (let turns = 0; turns < 10; turns += 1) await turn();
      // The time stands still: nothing but the abort has ended it.
      expect(ending).toBe(reason);
      expect([open.size, clock.pending]).toEqual([0, 0]);
    });
  }
}

test("an append that is given up leaves those beside it alone, and the next one begins anew", async () => {
  const bodies: string[] = [];
  let isDown = true;
  const fetcher: typeof fetch = (_url, init) => {
    if (init?.method === "HEAD") return Promise.resolve(new Response(null, { headers: HEAD }));
    if (!(init?.body instanceof Uint8Array)) {
      return Promise.resolve(new Response(OURS, { status: 400 }));
    }
    if (isDown) return new Promise(() => undefined);
    bodies.push(new TextDecoder().decode(init.body));
    const headers = { "Producer-Epoch": "0", "Stream-Next-Offset": "1_2" };
    return Promise.resolve(new Response(null, { status: 200, headers }));
  };
  const clock = createVirtualClock();
  const stream = connect("http://stage.test/v1/stream/s", { fetch: fetcher, clock });
  const stop = new AbortController();
  const given = stream.append("given up", { signal: stop.signal });
  const kept = stream.append("kept");
  for (let turns = 0; turns < 10; turns += 1) await turn();
  stop.abort(new Error("given up"));
  await expect(given).rejects.toThrow("given up");
  isDown = false;
  // The batch of both is on its way: it is repeated for the one that still waits.
  for (let rounds = 0; bodies.length === 0; rounds += 1) {
    if (rounds > 1000) throw new Error("nothing was sent again");
    clock.advance(1_000);
    await turn();
  }
  await kept;
  expect(bodies).toEqual(['["given up","kept"]']);
  await stream.append("next");
  expect(bodies.at(-1)).toBe('["next"]');
});

test("a process whose only append was given up ends by itself", async () => {
  const { code } = await bundle("client/client.ts");
  const file = join(mkdtempSync(join(tmpdir(), "hapax-aborts-")), "client.mjs");
  writeFileSync(file, code);
  const program = `
    import { createServer } from "node:http";
    import { connect } from ${JSON.stringify(pathToFileURL(file).href)};
    const server = createServer(() => undefined).listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    const stream = connect("http://127.0.0.1:" + server.address().port + "/v1/stream/s");
    const stop = new AbortController();
    setTimeout(() => stop.abort(), 100);
    await stream.append(1, { signal: stop.signal }).catch(() => undefined);
    server.close();
    server.closeAllConnections();
    process.stdout.write("given up");
  `;
  const words = ["--input-type=module", "-e", program];
  // Without the mend it goes on for the 60 s of its patience.
  const ended = spawnSync(process.execPath, words, { timeout: 40_000, encoding: "utf8" });
  expect([ended.status, ended.signal, ended.stdout]).toEqual([0, null, "given up"]);
}, 60_000);

test.each(["read", "long-poll", "sse"] as const)(
  "%s ends with its signal inside of an answer, also if fetch does not look at its signal",
  async (kind) => {
    const body = new TextEncoder().encode(kind === "sse" ? "event: data\n" : "[1");
    const type = kind === "sse" ? "text/event-stream" : "application/json";
    const begun = deferred<void>();
    const stream = connect("http://127.0.0.1:9/v1/stream/silent", {
      fetch: () => {
        const pieces = new ReadableStream<Uint8Array>({
          start(controller) {
            controller.enqueue(body);
          },
        });
        setTimeout(begun.resolve, 5);
        return Promise.resolve(
          new Response(pieces, { headers: { ...HEAD, "Content-Type": type } }),
        );
      },
    });
    const stop = new AbortController();
    const { signal } = stop;
    const reading = (async () => {
      if (kind === "read") await stream.read({ signal }).values();
      else for await (const _record of stream.follow({ from: "1_1", live: kind, signal }));
    })();
    await begun.promise;
    stop.abort("enough");
    await expect(reading).rejects.toBe("enough");
  },
);
