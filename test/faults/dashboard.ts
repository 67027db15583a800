/** Faults of what people look at: lists that show too much, and a page that would run what a stream holds. */

import type { Fault } from "./faults.ts";

const INSPECTION = "src/streams/server/inspection.ts";
const TESTS = "test/protocol/inspection.test.ts";

export const dashboardFaults: readonly Fault[] = [
  {
    name: "dashboard: forks are named that the caller may not read",
    guarantee: "G40",
    file: INSPECTION,
    find: 'if (fork?.source !== id || isDeleted || !access.may("read", { stream: name })) continue;',
    replace: "if (fork?.source !== id || isDeleted) continue;",
    caughtBy: {
      file: TESTS,
      test: "one stream > names its forks and its source, to those who may read them",
    },
  },
  {
    name: "dashboard: an identity that administers a part of the server sees all API keys",
    guarantee: "G40",
    file: INSPECTION,
    find: 'access.requireWholeServer("admin");',
    replace: 'access.require("admin");',
    caughtBy: {
      file: TESTS,
      test: "API keys are shown without what proves them, to an identity that may do everything",
    },
  },
  {
    name: "dashboard: API keys are shown with the digests of their secrets",
    guarantee: "G40",
    file: "src/streams/access/api-keys.ts",
    find: "const { sha256: _secret, ...shown } = JSON.parse(text) as ApiKeyRecord;",
    replace: "const { ...shown } = JSON.parse(text) as ApiKeyRecord;",
    caughtBy: {
      file: TESTS,
      test: "API keys are shown without what proves them, to an identity that may do everything",
    },
  },
  {
    name: "dashboard: a subscription is shown to a caller that may follow only a part of what it follows",
    guarantee: "G40",
    file: INSPECTION,
    find: "return access.isUnlimited || isShown(parts, access, id, settings.pattern, links);",
    replace: "return access.isUnlimited || isShown(parts, access, id, undefined, new Map());",
    caughtBy: {
      file: TESTS,
      test: "subscriptions are listed to those who may follow all that they follow, page by page",
    },
  },
  {
    name: "dashboard: a key is found beyond its window",
    guarantee: "G2",
    file: INSPECTION,
    find: "if (parts.engine.nowMs() - atMs >= windowMs) return answerKey(parts, { stored: false });",
    replace: "",
    caughtBy: { file: TESTS, test: "a key that has reached its age is not stored any more" },
  },
  {
    name: "dashboard: every script of the origin may run in the page, also a stream",
    guarantee: "G37",
    file: "src/streams/server/dashboard.ts",
    find: "`script-src 'nonce-${nonce}'`,",
    replace: "`script-src 'self' 'nonce-${nonce}'`,",
    caughtBy: {
      file: TESTS,
      test: "the dashboard > runs one script by a nonce that is new each time, and its URLs are relative",
    },
  },
];
