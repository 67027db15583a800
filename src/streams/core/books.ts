/**
 * The rules of what follows streams: groups and subscriptions. A world gets them when it is made, so that a program without groups
 * does not bundle their rules.
 *
 * A book without rules knows only which groups or subscriptions there are. Who opens its world must refuse one that has some: nothing
 * would follow the streams for them.
 */

import type { StreamCreated } from "./change.ts";
import type { GroupBookImage } from "./group-image.ts";
import type { Cursor, GroupBook, GroupChange } from "./group-state.ts";
import type { BookImage } from "./subscription-image.ts";
import type { SubscriptionBook, SubscriptionChange } from "./subscription-state.ts";
import type { Offset, StreamName } from "./types.ts";

export interface GroupRules {
  readonly create: () => GroupBook;
  readonly apply: (book: GroupBook, change: GroupChange) => void;
  readonly found: (book: GroupBook, stream: StreamCreated, earliest: Offset) => void;
  readonly lost: (book: GroupBook, stream: StreamName) => void;
  readonly trimmed: (book: GroupBook, stream: StreamName, earliest: Offset) => void;
  readonly cursorsAt: (book: GroupBook, stream: StreamName) => readonly (Cursor | undefined)[];
  readonly image: (book: GroupBook) => GroupBookImage;
  readonly restore: (book: GroupBook, image: GroupBookImage) => void;
}

export interface SubscriptionRules {
  readonly create: () => SubscriptionBook;
  readonly apply: (book: SubscriptionBook, change: SubscriptionChange) => void;
  readonly gone: (book: SubscriptionBook, stream: StreamName) => void;
  readonly image: (book: SubscriptionBook) => BookImage;
  readonly restore: (book: SubscriptionBook, image: BookImage) => void;
}

export interface BookRules {
  readonly groups: GroupRules;
  readonly subscriptions: SubscriptionRules;
}

/** Both kinds of books without rules have the same members as far as they have any. */
interface BareBook {
  readonly byId: Map<string, unknown>;
  readonly byStream: ReadonlyMap<StreamName, unknown>;
  readonly named: ReadonlyMap<StreamName, unknown>;
  nextToken: number;
  generationFloor: number;
  jobCount: number;
}

/** The casts give one book to both kinds: nothing but `byId` and the counters is read without rules. */
function createBare(): GroupBook & SubscriptionBook {
  const book: BareBook = {
    byId: new Map(),
    byStream: new Map(),
    named: new Map(),
    nextToken: 1,
    generationFloor: 0,
    jobCount: 0,
  };
  return book as unknown as GroupBook & SubscriptionBook;
}

const bare = (book: GroupBook | SubscriptionBook): BareBook => book as unknown as BareBook;
const nothing = (): void => undefined;

/** Counters that only grow are kept for the life in which the rules are back. */
export const NO_GROUPS: GroupRules = {
  create: createBare,
  apply(book, { kind, group }) {
    if (kind === "group_created") bare(book).byId.set(group, group);
    if (kind === "group_deleted") bare(book).byId.delete(group);
  },
  found: nothing,
  lost: nothing,
  trimmed: nothing,
  cursorsAt: () => [],
  image: ({ nextToken }) => ({ nextToken, groups: [] }),
  restore(book, { nextToken, groups }) {
    bare(book).nextToken = nextToken;
    for (const { id } of groups) bare(book).byId.set(id, id);
  },
};

export const NO_SUBSCRIPTIONS: SubscriptionRules = {
  create: createBare,
  apply(book, { kind, subscription }) {
    if (kind === "subscription_created") bare(book).byId.set(subscription, subscription);
    if (kind === "subscription_deleted") bare(book).byId.delete(subscription);
  },
  gone: nothing,
  image: ({ generationFloor }) => ({ generationFloor, subscriptions: [] }),
  restore(book, { generationFloor, subscriptions }) {
    bare(book).generationFloor = generationFloor;
    for (const { id } of subscriptions) bare(book).byId.set(id, id);
  },
};
