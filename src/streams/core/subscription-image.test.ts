// A snapshot keeps everything of subscriptions.
import fc from "fast-check";
import { expect, test } from "vitest";
import { applyStreamGone, applySubscription, createSubscriptionBook } from "./subscription.ts";
import { type BookImage, imageOfBook, restoreBook } from "./subscription-image.ts";
import type { SubscriptionBook, SubscriptionChange } from "./subscription-state.ts";
import type { Offset, StreamName, TimeMs } from "./types.ts";

const STREAMS = ["/a", "/b", "/c"] as StreamName[];

/** Returns a change that is possible in the present book. */
function changeOf(book: SubscriptionBook, choice: number, atMs: TimeMs): SubscriptionChange {
  const subscription = `s${choice % 3}`;
  const stream = STREAMS[choice % STREAMS.length] ?? ("/a" as StreamName);
  const existing = book.byId.get(subscription);
  const link = { stream, isExplicit: choice % 2 === 0, isGlob: choice % 2 === 1 };
  if (existing === undefined) {
    const way = { kind: "webhook", url: "https://example.com" } as const;
    const pattern = choice % 4 === 0 ? undefined : "/**";
    const settings = { way, pattern, streams: [], leaseMs: 1, description: undefined };
    const links = [{ ...link, acked: choice % 5 === 0 ? undefined : (choice as Offset) }];
    const generation = book.generationFloor;
    return { kind: "subscription_created", atMs, subscription, settings, generation, links };
  }
  if (choice % 7 === 0) return { kind: "subscription_deleted", atMs, subscription };
  if (choice % 7 === 1) {
    return {
      kind: "subscription_linked",
      atMs,
      subscription,
      links: [{ ...link, acked: undefined }],
    };
  }
  if (choice % 7 === 2) return { kind: "subscription_unlinked", atMs, subscription, stream };
  const leaseUntilMs = (atMs + 10) as TimeMs;
  if (existing.phase.kind === "idle") {
    const generation = existing.generation + 1;
    const tails = [...existing.links.keys()].map((name) => [name, choice as Offset] as const);
    const wakeId = `w${generation}`;
    const lease = choice % 2 === 0 ? undefined : leaseUntilMs;
    const base = { kind: "subscription_woken", atMs, subscription, wakeId, generation } as const;
    return { ...base, tails, leaseUntilMs: lease };
  }
  if (existing.phase.kind === "waking") {
    if (choice % 2 === 0) {
      return { kind: "subscription_claimed", atMs, subscription, holder: "worker", leaseUntilMs };
    }
    const base = { kind: "subscription_delivery_failed", atMs, subscription } as const;
    return { ...base, attempts: choice, nextAttemptAtMs: leaseUntilMs, leaseUntilMs };
  }
  return { kind: "subscription_released", atMs, subscription, reason: "done" };
}

function tell(book: SubscriptionBook, choices: readonly number[]): void {
  for (const [at, choice] of choices.entries()) {
    const stream = STREAMS[choice % STREAMS.length];
    if (choice % 11 === 0 && stream !== undefined) applyStreamGone(book, stream);
    else applySubscription(book, changeOf(book, choice, at as TimeMs));
  }
}

/** Returns everything but the memo, which is empty after a restart. */
function plain({ settledStreams: _memo, globs, ...book }: SubscriptionBook): unknown {
  return { ...book, globs: new Set(globs.keys()) };
}

test("a book made from its image is the same and answers the same ever after", () => {
  const choices = fc.array(fc.nat(1000), { maxLength: 60 });
  fc.assert(
    fc.property(choices, choices, (before, after) => {
      const book = createSubscriptionBook();
      tell(book, before);
      const copy = createSubscriptionBook();
      restoreBook(copy, JSON.parse(JSON.stringify(imageOfBook(book))) as BookImage);
      expect(plain(copy)).toEqual(plain(book));
      tell(book, after);
      tell(copy, after);
      expect(plain(copy)).toEqual(plain(book));
    }),
    { numRuns: 500 },
  );
});

test("a pattern still matches after a restart", () => {
  const book = createSubscriptionBook();
  applySubscription(book, changeOf(book, 1, 1 as TimeMs));
  const copy = createSubscriptionBook();
  restoreBook(copy, JSON.parse(JSON.stringify(imageOfBook(book))) as BookImage);
  const [glob] = copy.globs.values();
  expect(glob?.matches("/a" as StreamName)).toBe(true);
});
