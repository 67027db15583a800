// Who may move a position: every holder, every belief, in a small world.
import { expect, test } from "vitest";
import { decideMove, decideTake, type HeldPosition } from "./position.ts";

const TOKENS = [1, 2, 3];
const PLACES = [undefined, "a", "b"];
const WORLDS: readonly (HeldPosition | undefined)[] = [
  undefined,
  ...TOKENS.flatMap((token) => PLACES.map((at) => ({ token, at }))),
];

test("exactly the newest holder moves a position, and only from where it is", () => {
  for (const held of WORLDS)
    for (const token of TOKENS)
      for (const from of PLACES) {
        const isNewest = held === undefined || token >= held.token;
        const isThere = held !== undefined && held.at === from;
        expect(decideTake(held, token).kind).toBe(isNewest ? "granted" : "lost");
        const moved = decideMove(held, token, from).kind;
        expect(moved).toBe(isNewest && isThere ? "granted" : "lost");
      }
});

test("what is refused says why", () => {
  const held = { token: 5, at: "a" };
  expect([
    decideMove(held, 4, "a"),
    decideMove(held, 5, undefined),
    decideMove({ token: 5, at: undefined }, 6, "b"),
    decideMove(undefined, 1, undefined),
  ]).toEqual([
    { kind: "lost", reason: "token 4 was followed by 5" },
    { kind: "lost", reason: "it is at a, not at its beginning" },
    { kind: "lost", reason: "it is at its beginning, not at b" },
    { kind: "lost", reason: "the position was never taken" },
  ]);
});
