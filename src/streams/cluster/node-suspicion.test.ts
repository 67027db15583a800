import { expect, test } from "vitest";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import { NodeSuspicion, SUSPECT_MS } from "./node-suspicion.ts";
import { NodeWatch } from "./node-watch.ts";
import type { PeerEvents } from "./peers.ts";

const N1 = { node: "n1", life: "l1", peer: "n1:1" };

function stage() {
  const clock = createVirtualClock(0);
  const watch = new NodeWatch(5000);
  const connections = new Map<string, PeerEvents>();
  const notes: string[] = [];
  const state = { beat: 1, isRefused: true, looks: 0 };
  const look = (): Promise<void> => {
    state.looks += 1;
    const { node, life } = N1;
    watch.saw([{ node, life, beat: state.beat }], clock.steadyMs(), clock.steadyMs());
    return Promise.resolve();
  };
  const suspicion = new NodeSuspicion({
    clock,
    watch,
    look,
    connect(peer, events) {
      connections.set(peer, events);
      return () => connections.delete(peer);
    },
    onNote: (note) => notes.push(note),
    isRefused: () => Promise.resolve(state.isRefused),
  });
  const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  const breakUp = async (): Promise<void> => {
    connections.get("n1:1")?.onBroken();
    await turn();
  };
  const wait = async (ms: number): Promise<void> => {
    clock.advance(ms);
    await turn();
  };
  const isAlive = (): boolean => watch.isAlive("n1", clock.steadyMs());
  return { suspicion, connections, notes, state, breakUp, wait, isAlive };
}

test("SU1 a node is gone if its connection is, its port refuses, and it gives no sign meanwhile", async () => {
  const { suspicion, state, breakUp, wait, isAlive } = stage();
  suspicion.keep([N1]);
  await breakUp();
  expect([isAlive(), state.looks]).toEqual([true, 1]);
  await wait(SUSPECT_MS - 1);
  expect(isAlive()).toBe(true);
  await wait(1);
  expect([isAlive(), state.looks]).toEqual([false, 2]);
});

test("SU1 SU2 a node that gives signs, or whose port answers, is left to the lease", async () => {
  const { suspicion, state, breakUp, wait, isAlive } = stage();
  suspicion.keep([N1]);
  state.isRefused = false;
  await breakUp();
  expect(state.looks).toBe(0);
  state.isRefused = true;
  await breakUp();
  // As often as a living node gives them, until the look is over.
  for (let at = 0; at < 60; at += 1) {
    state.beat += 1;
    await wait(50);
    expect(isAlive()).toBe(true);
  }
  const { looks } = state;
  await wait(1000);
  expect([isAlive(), state.looks]).toEqual([true, looks]);
});

test("SU2 a sign that was on its way when the process ended does not make it a living one", async () => {
  const { suspicion, state, breakUp, wait, isAlive } = stage();
  suspicion.keep([N1]);
  await breakUp();
  state.beat += 1;
  await wait(SUSPECT_MS);
  expect(isAlive()).toBe(true);
  await wait(SUSPECT_MS);
  expect(isAlive()).toBe(false);
});

test("each process is watched once, and no longer than it is there", () => {
  const { suspicion, connections } = stage();
  suspicion.keep([N1]);
  suspicion.keep([N1, { ...N1, node: "n2", life: "l2", peer: undefined }]);
  expect([...connections.keys()]).toEqual(["n1:1"]);
  suspicion.keep([]);
  expect([...connections.keys()]).toEqual([]);
});

test("SU3 the operator hears once of a node that lives and cannot be reached, and at once of another key", () => {
  const { suspicion, connections, notes } = stage();
  suspicion.keep([N1]);
  const events = connections.get("n1:1");
  for (let at = 0; at < 4; at += 1) events?.onFailed("connect ECONNREFUSED", false);
  expect(notes).toEqual([]);
  for (let at = 0; at < 9; at += 1) events?.onFailed("connect ECONNREFUSED", false);
  expect(notes.splice(0)).toEqual([
    "node n1 lives, and cannot be reached at n1:1: connect ECONNREFUSED",
  ]);
  events?.onOpen();
  expect(notes.splice(0)).toEqual(["node n1 is reached at n1:1"]);
  events?.onFailed("alert", true);
  events?.onFailed("alert", true);
  expect(notes).toEqual([
    "node n1 lives, and cannot be reached at n1:1: all nodes of a cluster need the same peer key",
  ]);
});
