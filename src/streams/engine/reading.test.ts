// Reading over forks, against a model that keeps each stream's whole text and where it may be cut.
// PROTOCOL.md §8
import fc from "fast-check";
import { expect, test } from "vitest";
import type { Offset, StreamName } from "../core/types.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { appendCommand, createCommand, joinedText } from "../../testing/commands.ts";
import { openGatedStore } from "../../../test/kits/gated-store.ts";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import type { Engine } from "./engine.ts";
import { WholeEngine } from "./whole-engine.ts";
import { readAcrossForks } from "./reading.ts";

const nameOf = (index: number): StreamName => `/s${index}` as StreamName;

function openEngine(store = openMemoryStore()): Engine {
  return new WholeEngine({ store, clock: createVirtualClock(), jsonRecordsEnd: () => undefined });
}

/** A stream of the model: its whole text and the offsets at which its appends start. */
interface Model {
  readonly text: string;
  readonly borders: readonly number[];
}

type Step =
  | { readonly kind: "append"; readonly stream: number; readonly length: number }
  | {
      readonly kind: "fork";
      readonly source: number;
      readonly border: number;
      readonly past: number;
    };

const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({
    kind: fc.constant("append" as const),
    stream: fc.nat(),
    length: fc.integer({ min: 1, max: 5 }),
  }),
  fc.record({
    kind: fc.constant("fork" as const),
    source: fc.nat(),
    border: fc.nat(),
    past: fc.nat(2),
  }),
);

const LETTERS = "abcdefghijklmnopqrstuvwxyz";

async function build(steps: readonly Step[]): Promise<{ engine: Engine; models: Model[] }> {
  const engine = openEngine();
  const models: Model[] = [{ text: "", borders: [0] }];
  await engine.create(createCommand(nameOf(0)));
  for (const [index, next] of steps.entries()) {
    const at = (next.kind === "append" ? next.stream : next.source) % models.length;
    const model = models[at];
    if (model === undefined) continue;
    if (next.kind === "append") {
      const piece = (LETTERS[index % 26] ?? "").repeat(next.length);
      await engine.append(nameOf(at), appendCommand(piece));
      const text = model.text + piece;
      models[at] = { text, borders: [...model.borders, text.length] };
      continue;
    }
    const anchor = model.borders[next.border % model.borders.length] ?? 0;
    const end = model.borders.find((border) => border > anchor) ?? anchor;
    const subOffset = Math.min(next.past, end - anchor);
    const point = anchor + subOffset;
    const fork = { sourceName: nameOf(at), anchor: anchor as Offset, subOffset };
    const { kind } = await engine.create(createCommand(nameOf(models.length), { fork }));
    expect(kind).toBe("created");
    const borders = [...model.borders.filter((border) => border < point), point];
    models.push({ text: model.text.slice(0, point), borders });
  }
  return { engine, models };
}

test("a fork of a fork of a fork shows exactly the text it has by definition", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { maxLength: 25 }),
      fc.integer({ min: 1, max: 8 }),
      async (steps, bytesMax) => {
        const { engine, models } = await build(steps);
        for (const [index, { text, borders }] of models.entries()) {
          const look = await engine.look(nameOf(index));
          if (look.kind !== "found") throw new Error("a stream is missing");
          expect(look.tail).toBe(text.length);
          for (let from = 0; from <= text.length; from += 1) {
            const page = await engine.read(look.state, from as Offset, bytesMax);
            // Whole appends: the page starts at the border before `from` and ends at a border.
            const start = Math.max(...borders.filter((border) => border <= from));
            if (from < text.length) expect(page.start).toBe(start);
            expect(joinedText(page.appends)).toBe(
              text.slice(from < text.length ? start : from, page.next),
            );
            expect(borders).toContain(page.next);
            expect(page.next > from || from === text.length).toBe(true);
            expect(page.appends.length <= 1 || page.bytes <= bytesMax).toBe(true);
            expect(page.isUpToDate).toBe(page.next === text.length);
          }
        }
        await engine.close();
      },
    ),
    { numRuns: 150 },
  );
});

test("a read stops at the durable tail, though the store has more", async () => {
  const inner = openMemoryStore();
  const store = openGatedStore(inner);
  const engine = openEngine(store);
  const creation = engine.create(createCommand(nameOf(0), { text: "durable" }));
  await store.arrival();
  await store.release();
  await creation;
  void engine.append(nameOf(0), appendCommand("+flight"));
  await store.arrival();
  // The disk has the bytes already; only the confirmation is missing.
  await inner.commit(store.waiting[0] ?? []);
  const look = await engine.look(nameOf(0));
  if (look.kind !== "found") throw new Error("the stream is missing");
  const page = await engine.read(look.state, 0 as Offset, 1000);
  expect([joinedText(page.appends), page.next, page.tail, page.isUpToDate]).toEqual([
    "durable",
    7,
    7,
    true,
  ]);
  const direct = await readAcrossForks(inner, look.state, 0 as Offset, 14 as Offset, 1000);
  expect(joinedText(direct.appends)).toBe("durable+flight");
});

test("what the source gets after the fork, and its deletion, change nothing for the fork", async () => {
  const engine = openEngine();
  await engine.create(createCommand(nameOf(0), { text: "shared" }));
  const fork = { sourceName: nameOf(0), anchor: undefined, subOffset: 0 };
  await engine.create(createCommand(nameOf(1), { fork, text: "|own" }));
  await engine.append(nameOf(0), appendCommand("|later"));
  await engine.delete(nameOf(0));
  const look = await engine.look(nameOf(1));
  if (look.kind !== "found") throw new Error("the fork is missing");
  const page = await engine.read(look.state, 0 as Offset, 1000);
  expect(joinedText(page.appends)).toBe("shared|own");
  expect((await engine.look(nameOf(0))).kind).toBe("gone");
  await engine.close();
});
