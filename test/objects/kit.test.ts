// The kit of objects: each way to take an object away ends its life in memory, and leaves what is durable.
import { expect, test } from "vitest";
import { requirePart } from "../client/runtimes-kit.ts";
import { startObjects, startStops, whyNoWorkerd } from "../kits/workerd-objects.ts";

const reason = whyNoWorkerd();

test("an object counts over evict, abort, abort all, and SIGKILL with a restart", async (context) => {
  requirePart(context, reason === undefined ? "workerd" : undefined, reason ?? "");
  const stops = await startStops();
  const host = await startObjects({
    source: new URL("fixtures/counter.ts", import.meta.url),
    classes: ["Counter"],
    texts: { STOPS: stops.url },
  });
  try {
    const object = host.object("Counter", "a");
    const count = (): Promise<unknown> => object.json("/count");
    expect(await count()).toEqual({ count: 1, life: 1 });
    expect(await count()).toEqual({ count: 2, life: 1 });
    await object.evict();
    expect(await count()).toEqual({ count: 3, life: 2 });
    await object.abort();
    expect(await count()).toEqual({ count: 4, life: 3 });
    await host.abortAll();
    expect(await count()).toEqual({ count: 5, life: 4 });
    await host.evictAll();
    expect(await count()).toEqual({ count: 6, life: 5 });
    const { url } = host;
    await host.restart();
    expect(host.url).toBe(url);
    expect(await count()).toEqual({ count: 7, life: 1 });
    expect(await host.object("Counter", "b").json("/read")).toEqual({ count: 0, life: 2 });

    // An object that waits for the test goes on, or is taken away there.
    const stopped = object.json("/stop");
    (await stops.reached("here"))();
    expect(await stopped).toEqual({ count: 8, life: 1 });
    const lost = object.json("/stop").catch(() => "lost");
    await stops.reached("here");
    await host.restart();
    expect([await lost, stops.count("here")]).toEqual(["lost", 2]);
    expect(await object.json("/read")).toEqual({ count: 8, life: 1 });
  } finally {
    await stops.stop();
    await host.stop();
  }
});
