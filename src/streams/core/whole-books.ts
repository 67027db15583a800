/** The rules of all books: those of a program that leaves nothing out. */

import type { BookRules, GroupRules, SubscriptionRules } from "./books.ts";
import {
  applyGroup,
  applyStreamFound,
  applyStreamLost,
  applyStreamTrimmed,
  createGroupBook,
  cursorsAt,
} from "./group.ts";
import { imageOfGroups, restoreGroups } from "./group-image.ts";
import { applyStreamGone, applySubscription, createSubscriptionBook } from "./subscription.ts";
import { imageOfBook, restoreBook } from "./subscription-image.ts";

export const GROUP_RULES: GroupRules = {
  create: createGroupBook,
  apply: applyGroup,
  found: applyStreamFound,
  lost: applyStreamLost,
  trimmed: applyStreamTrimmed,
  cursorsAt,
  image: imageOfGroups,
  restore: restoreGroups,
};

export const SUBSCRIPTION_RULES: SubscriptionRules = {
  create: createSubscriptionBook,
  apply: applySubscription,
  gone: applyStreamGone,
  image: imageOfBook,
  restore: restoreBook,
};

export const WHOLE_BOOKS: BookRules = { groups: GROUP_RULES, subscriptions: SUBSCRIPTION_RULES };
