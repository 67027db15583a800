import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import { type FaultProxyOptions, type FaultProxy, openFaultProxy } from "./fault-proxy.ts";

interface Stage {
  readonly proxy: FaultProxy;
  /** Bodies that have reached the server, in the order of their arrival. */
  readonly arrived: string[];
  /** What the client gets: the status and the body, or no answer. */
  ask(body: string): Promise<string>;
}

/** A server that answers every POST with its body, in capitals. */
async function onStage(
  options: FaultProxyOptions,
  run: (stage: Stage) => Promise<void>,
): Promise<void> {
  const arrived: string[] = [];
  const server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on("data", (piece: Buffer) => pieces.push(piece));
    request.on("end", () => {
      const text = Buffer.concat(pieces).toString();
      arrived.push(text);
      response.writeHead(201, { "X-Said": request.headers["x-say"] ?? "" });
      response.end(text.toUpperCase());
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo; // It listens on a port.
  const proxy = await openFaultProxy(() => `http://127.0.0.1:${port}`, options);
  const ask = async (body: string): Promise<string> => {
    try {
      const headers = { "x-say": body };
      const answer = await fetch(`${proxy.url}/some/path?q=1`, { method: "POST", body, headers });
      return `${answer.status} ${answer.headers.get("x-said")} ${await answer.text()}`;
    } catch {
      return "nothing";
    }
  };
  try {
    await run({ proxy, arrived, ask });
  } finally {
    await proxy.close();
    server.closeAllConnections();
    server.close();
  }
}

const NUMBERS = Array.from({ length: 60 }, (_, index) => `body ${index}`);

async function hearAll(stage: Stage): Promise<string[]> {
  const heard: string[] = [];
  for (const body of NUMBERS) heard.push(await stage.ask(body));
  return heard;
}

test("without faults everything arrives as it was sent, both ways", () =>
  onStage({ seed: 1 }, async (stage) => {
    expect(await hearAll(stage)).toEqual(
      NUMBERS.map((body) => `201 ${body} ${body.toUpperCase()}`),
    );
    expect(stage.arrived).toEqual(NUMBERS);
    const { requests, droppedAnswers, droppedRequests, delayedRequests } = stage.proxy;
    expect([requests, droppedAnswers, droppedRequests, delayedRequests]).toEqual([60, 0, 0, 0]);
  }));

test("a dropped answer was given by the server, and a dropped request never reached it", () =>
  onStage({ seed: 2, dropAnswers: 0.3, dropRequests: 0.2 }, async (stage) => {
    const heard = await hearAll(stage);
    const { requests, droppedAnswers, droppedRequests } = stage.proxy;
    expect(requests).toBe(60);
    // About a third and a fifth. The seed decides exactly how many.
    expect([droppedAnswers > 8, droppedRequests > 4]).toEqual([true, true]);
    expect(stage.arrived).toHaveLength(60 - droppedRequests);
    expect(heard.filter((text) => text === "nothing")).toHaveLength(
      droppedAnswers + droppedRequests,
    );
    for (const [index, text] of heard.entries()) {
      const body = NUMBERS[index] ?? "";
      if (text !== "nothing") expect(text).toBe(`201 ${body} ${body.toUpperCase()}`);
    }
  }));

test("the same seed drops the same requests, and another seed drops others", async () => {
  const runs: string[] = [];
  for (const seed of [3, 3, 4]) {
    await onStage({ seed, dropAnswers: 0.3, dropRequests: 0.1 }, async (stage) => {
      runs.push((await hearAll(stage)).join());
    });
  }
  expect(runs[0]).toBe(runs[1]);
  expect(runs[0]).not.toBe(runs[2]);
});

test("a request that is held back is overtaken, and arrives all the same", () =>
  onStage({ seed: 6, delayRequests: 0.5, delayMsMax: 50 }, async (stage) => {
    const heard = await Promise.all(NUMBERS.map((body) => stage.ask(body)));
    expect(heard).not.toContain("nothing");
    expect(stage.proxy.delayedRequests).toBeGreaterThan(10);
    expect(stage.arrived).not.toEqual(NUMBERS);
    expect(stage.arrived.toSorted()).toEqual(NUMBERS.toSorted());
  }));

test("after it was healed nothing is dropped any more", () =>
  onStage({ seed: 5, dropAnswers: 1 }, async (stage) => {
    expect(await stage.ask("one")).toBe("nothing");
    stage.proxy.heal();
    expect(await stage.ask("two")).toBe("201 two TWO");
    expect(stage.arrived).toEqual(["one", "two"]);
  }));

test("a server that is away is an answer that does not come", async () => {
  const proxy = await openFaultProxy("http://127.0.0.1:1", { seed: 1 });
  await expect(fetch(proxy.url)).rejects.toThrow("fetch failed");
  const unknown = await openFaultProxy(() => Promise.reject(new Error("none")), { seed: 1 });
  await expect(fetch(unknown.url)).rejects.toThrow("fetch failed");
  await Promise.all([proxy.close(), unknown.close()]);
});
