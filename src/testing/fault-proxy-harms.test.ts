import { createServer } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { expect, test } from "vitest";
import { type FaultProxy, type FaultProxyOptions, openFaultProxy } from "./fault-proxy.ts";

interface Stage {
  readonly proxy: FaultProxy;
  /** Bodies that have reached the server completely, in the order of their arrival. */
  readonly arrived: string[];
  /** How many bytes of a body had come when its connection ended too early. */
  readonly torn: number[];
  /** What the client gets: status, `Retry-After` and body, the part of a body, or nothing. */
  ask(body: string): Promise<string>;
}

/** A server that answers every POST with its body, in capitals, and every DELETE with 204. */
async function onStage(
  options: Omit<FaultProxyOptions, "seed"> & { readonly seed?: number },
  run: (stage: Stage) => Promise<void>,
): Promise<void> {
  const arrived: string[] = [];
  const torn: number[] = [];
  const server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on("data", (piece: Buffer) => pieces.push(piece));
    request.on("error", () => torn.push(Buffer.concat(pieces).length));
    request.on("end", () => {
      const text = Buffer.concat(pieces).toString();
      arrived.push(text);
      if (request.method === "DELETE") response.writeHead(204).end();
      else response.writeHead(201).end(text.toUpperCase());
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo; // It listens on a port.
  const proxy = await openFaultProxy(`http://127.0.0.1:${port}`, { seed: 1, ...options });
  const ask = async (body: string): Promise<string> => {
    let part = "";
    const patience = new AbortController();
    const silenced = silencedOf(proxy);
    // A silenced client gives up at once: how long a client waits is its own decision.
    const watch = setInterval(() => {
      if (silencedOf(proxy) > silenced) patience.abort();
    }, 1);
    try {
      const { signal } = patience;
      const answer = await fetch(proxy.url, { method: "POST", body, signal });
      const later = answer.headers.get("retry-after");
      part = `${answer.status}${later === null ? "" : ` after ${later}`}`;
      const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
      for (part += " "; ;) {
        const piece = await reader?.read();
        if (piece?.value === undefined) return part;
        part += piece.value;
      }
    } catch (error) {
      if (error instanceof DOMException) return `${part}silence`;
      return `${part}nothing`;
    } finally {
      clearInterval(watch);
    }
  };
  try {
    await run({ proxy, arrived, torn, ask });
  } finally {
    await proxy.close();
    server.closeAllConnections();
    server.close();
  }
}

function silencedOf({ counts }: FaultProxy): number {
  return counts.silencedRequests + counts.silencedAnswers;
}

const BODIES = Array.from({ length: 40 }, (_, index) => `body ${index}`);

test("a request that is cut reaches the server in part, and its client loses the connection", () =>
  onStage({ fateOf: () => ({ harm: "cutRequests", passedShare: 0.5 }) }, async (stage) => {
    expect(await stage.ask("0123456789")).toBe("nothing");
    expect(stage.arrived).toEqual([]);
    expect(stage.torn).toEqual([5]);
    expect(stage.proxy.counts.cutRequests).toBe(1);
  }));

test("an answer is cut in its body: the server has answered, the client has a part of it", () =>
  onStage({ fateOf: () => ({ harm: "cutAnswers", passedShare: 0.5 }) }, async (stage) => {
    expect(await stage.ask("abcdefghij")).toBe("201 ABCDEnothing");
    expect(stage.arrived).toEqual(["abcdefghij"]);
    expect(stage.proxy.counts.cutAnswers).toBe(1);
  }));

test("an answer without a body is cut in its head", () =>
  onStage(
    { fateOf: () => ({ harm: "cutAnswers", passedShare: 0.9 }) },
    async ({ proxy, arrived }) => {
      await expect(fetch(proxy.url, { method: "DELETE" })).rejects.toThrow("fetch failed");
      expect(arrived).toEqual([""]);
    },
  ));

for (const [harm, reached] of [
  ["silenceRequests", []],
  ["silenceAnswers", ["first"]],
] as const) {
  test(`${harm}: the connection stays open and silent, until the client's own limit`, () =>
    onStage(
      { fateOf: ({ number }) => (number === 1 ? { harm } : {}) },
      async ({ proxy, arrived }) => {
        const socket = await openSocket(proxy.url);
        const heard: string[] = [];
        let hasEnded = false;
        socket.setEncoding("utf8").on("data", (text: string) => heard.push(text));
        socket.on("close", () => (hasEnded = true));
        const post = (body: string): string =>
          `POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
        socket.write(post("first"));
        while (silencedOf(proxy) === 0) await turnOver();
        await proxy.drain();
        // Later bytes on the same connection are swallowed as well.
        socket.write(post("later"));
        expect(await fetch(proxy.url, { method: "DELETE" })).toMatchObject({ status: 204 });
        expect([heard, hasEnded]).toEqual([[], false]);
        expect(arrived).toEqual([...reached, ""]);
        socket.destroy();
      },
    ));
}

function openSocket(url: string): Promise<Socket> {
  return new Promise((resolve) => {
    const socket = connect({ host: "127.0.0.1", port: Number(new URL(url).port) }, () => {
      resolve(socket);
    });
  });
}

function turnOver(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

test("a client that waits for a silenced connection hears nothing at all", () =>
  onStage({ silenceRequests: 1 }, async (stage) => {
    expect(await stage.ask("one")).toBe("silence");
  }));

test("a refused request never reaches the server, and the client hears what the proxy made up", () =>
  onStage({ refuseRequests: 1 }, async (stage) => {
    const heard = new Set<string>();
    for (const body of BODIES) heard.add(await stage.ask(body));
    expect([...heard].toSorted()).toEqual([
      "429 after 0 the proxy says 429\n",
      "500 the proxy says 500\n",
      "502 the proxy says 502\n",
      "503 after 0 the proxy says 503\n",
      "503 the proxy says 503\n",
      "504 the proxy says 504\n",
    ]);
    expect(stage.arrived).toEqual([]);
    expect(stage.proxy.counts.refusedRequests).toBe(BODIES.length);
  }));

test("an answer that is refused was given by the server, and is never told as not done", () =>
  onStage({ refuseAnswers: 1 }, async (stage) => {
    for (const body of BODIES) expect(await stage.ask(body)).toMatch(/^50\d /);
    expect(stage.arrived).toEqual(BODIES);
    expect(stage.proxy.counts.refusedAnswers).toBe(BODIES.length);
  }));

test("refusals can be named", () =>
  onStage({ refuseRequests: 1, refusals: [{ status: 429, retryAfter: "2" }] }, async (stage) => {
    expect(await stage.ask("x")).toBe("429 after 2 the proxy says 429\n");
  }));

test("a duplicated request arrives twice, and its client hears one answer", () =>
  onStage({ duplicateRequests: 1, delayMsMax: 5 }, async (stage) => {
    for (const body of BODIES) expect(await stage.ask(body)).toBe(`201 ${body.toUpperCase()}`);
    await stage.proxy.drain();
    expect(stage.arrived.toSorted()).toEqual([...BODIES, ...BODIES].toSorted());
    expect(stage.proxy.counts.duplicatedRequests).toBe(BODIES.length);
  }));

test("a copy comes late, after what its client has sent next", () =>
  onStage(
    { fateOf: ({ number }) => (number === 1 ? { copyAfterMs: 60_000 } : {}) },
    async (stage) => {
      expect(await stage.ask("one")).toBe("201 ONE");
      expect(await stage.ask("two")).toBe("201 TWO");
      await stage.proxy.drain();
      expect(stage.arrived).toEqual(["one", "two", "one"]);
    },
  ));

test("a reordered request arrives when a later one was answered", () =>
  onStage(
    { fateOf: ({ number }) => (number === 1 ? { overtakenMsMax: 60_000 } : {}) },
    async (stage) => {
      const first = stage.ask("one");
      while (stage.proxy.counts.reorderedRequests === 0) await turnOver();
      expect(await stage.ask("two")).toBe("201 TWO");
      expect(await first).toBe("201 ONE");
      expect(stage.arrived).toEqual(["two", "one"]);
    },
  ));

test("a reordered request arrives even if no other request overtakes it", () =>
  onStage({ reorderRequests: 1, delayMsMax: 5 }, async (stage) => {
    expect(await stage.ask("alone")).toBe("201 ALONE");
  }));

test("an answer that is held back comes as it was given", () =>
  onStage({ delayAnswers: 1, delayMsMax: 5 }, async (stage) => {
    for (const body of BODIES) expect(await stage.ask(body)).toBe(`201 ${body.toUpperCase()}`);
    expect(stage.proxy.counts.delayedAnswers).toBe(BODIES.length);
  }));

const EVERYTHING = {
  dropRequests: 0.08,
  dropAnswers: 0.08,
  cutRequests: 0.08,
  cutAnswers: 0.08,
  silenceRequests: 0.04,
  silenceAnswers: 0.04,
  refuseRequests: 0.1,
  refuseAnswers: 0.1,
  delayRequests: 0.1,
  delayAnswers: 0.1,
  reorderRequests: 0.1,
  duplicateRequests: 0.1,
  delayMsMax: 3,
};

test("with all harms the n-th request meets the same in each run of a seed", async () => {
  const runs: string[] = [];
  for (const seed of [7, 7, 8]) {
    await onStage({ seed, ...EVERYTHING }, async (stage) => {
      const heard: string[] = [];
      for (const [at, body] of BODIES.entries()) {
        heard.push(await stage.ask(body));
        // An unharmed answer arrives whole.
        if (/^201 [^n]*$/.test(heard[at] ?? ""))
          expect(heard[at]).toBe(`201 ${body.toUpperCase()}`);
      }
      await stage.proxy.drain();
      const harmed = heard.filter((text) => !/^201 BODY \d+$/.test(text)).length;
      expect(harmed).toBeGreaterThan(10);
      expect(harmed).toBeLessThan(40);
      runs.push(
        `${heard.join()} ${JSON.stringify(stage.proxy.counts)} ${stage.arrived.toSorted().join()}`,
      );
    });
  }
  expect(runs[0]).toBe(runs[1]);
  expect(runs[0]).not.toBe(runs[2]);
});

test("after it was healed none of the harms is met any more", () =>
  onStage({ ...EVERYTHING, silenceRequests: 0.44 }, async (stage) => {
    stage.proxy.heal();
    for (const body of BODIES) expect(await stage.ask(body)).toBe(`201 ${body.toUpperCase()}`);
    expect(Object.values(stage.proxy.counts).every((count) => count === 0)).toBe(true);
    expect(stage.arrived).toEqual(BODIES);
  }));

test("what is held back when the proxy is closed never arrives", () =>
  onStage({ fateOf: () => ({ delayMs: 60_000 }) }, async (stage) => {
    const asked = stage.ask("never");
    while (stage.proxy.delayedRequests === 0) await turnOver();
    await stage.proxy.close();
    expect(await asked).toBe("nothing");
    expect(stage.arrived).toEqual([]);
  }));

test("shares of more than all requests are refused", async () => {
  const options = { seed: 1, dropRequests: 0.6, dropAnswers: 0.6 };
  await expect(openFaultProxy("http://127.0.0.1:1", options)).rejects.toMatchObject({
    code: "invalid_options",
  });
});
