/**
 * Turns subscriptions into plain data for a snapshot, and back. It leaves out indexes: they follow from the rest.
 *
 *   - a book made from its image is the same book: same subscriptions, same index, same answers.
 */

import { Glob } from "../../base/glob.ts";
import type {
  Generation,
  Link,
  SubscriptionPhase,
  Subscription,
  SubscriptionBook,
  SubscriptionId,
} from "./subscription-state.ts";
import type { Offset, StreamName } from "./types.ts";

type Tails = readonly (readonly [StreamName, Offset | null])[];
type PhaseImage = SubscriptionPhase extends infer P
  ? P extends { readonly wake: infer W }
    ? Omit<P, "wake"> & { readonly wake: Omit<W, "tails"> & { readonly tails: Tails } }
    : P
  : never;

type SubscriptionImage = Omit<Subscription, "links" | "phase"> & {
  readonly links: readonly (readonly [StreamName, Link])[];
  readonly phase: PhaseImage;
};

/** Plain JSON data. */
export interface BookImage {
  readonly generationFloor: Generation;
  readonly subscriptions: readonly SubscriptionImage[];
}

export function imageOfBook(book: SubscriptionBook): BookImage {
  return {
    generationFloor: book.generationFloor,
    subscriptions: [...book.byId.values()].map((subscription) => ({
      ...subscription,
      links: [...subscription.links],
      phase: imageOfPhase(subscription.phase),
    })),
  };
}

function imageOfPhase(phase: SubscriptionPhase): PhaseImage {
  if (phase.kind === "idle") return phase;
  const tails = [...phase.wake.tails].map(([stream, tail]) => [stream, tail ?? null] as const);
  return { ...phase, wake: { ...phase.wake, tails } };
}

/** Fills an empty book. */
export function restoreBook(readonlyBook: SubscriptionBook, image: BookImage): void {
  // The cast gives write access. The types make the book read-only for all other code.
  const book = readonlyBook as unknown as {
    generationFloor: Generation;
    byId: Map<SubscriptionId, Subscription>;
    byStream: Map<StreamName, Set<SubscriptionId>>;
    globs: Map<SubscriptionId, Glob>;
  };
  book.generationFloor = image.generationFloor;
  for (const kept of image.subscriptions) {
    const { id, settings } = kept;
    book.byId.set(id, { ...kept, links: new Map(kept.links), phase: restorePhase(kept.phase) });
    if (settings.pattern !== undefined) book.globs.set(id, new Glob(settings.pattern));
    for (const [stream] of kept.links) {
      const followers = book.byStream.get(stream);
      if (followers === undefined) book.byStream.set(stream, new Set([id]));
      else followers.add(id);
    }
  }
}

function restorePhase(image: PhaseImage): SubscriptionPhase {
  if (image.kind === "idle") return image;
  const tails = new Map(image.wake.tails.map(([stream, tail]) => [stream, tail ?? undefined]));
  return { ...image, wake: { ...image.wake, tails } };
}
