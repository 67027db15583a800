/** Servers that break a rule of groups. PROTOCOL.md §20. */

import type { Broken, Passed, Passing, Wrong } from "./wrong-server.ts";
import { call } from "./raw-http.ts";

const ROOT = "/_hapax/groups/";

function isAct({ method, path }: Passing, act: string): boolean {
  return method === "POST" && path.startsWith(ROOT) && path.endsWith(`/${act}`);
}

type Members = Readonly<Record<string, unknown>>;

/** Changes the answer to a claim that was given. */
function claimed(change: (claim: Members) => Members): NonNullable<Wrong["answer"]> {
  return async (passed, passing) => {
    if (!isAct(passing, "claim") || passed.status !== 200) return passed;
    return { ...passed, body: JSON.stringify(change(JSON.parse(passed.body) as Members)) };
  };
}

/** Commits in the name of the member that holds the stream. */
async function asHolder(passing: Passing, upstream: string): Promise<Passed | undefined> {
  if (!isAct(passing, "commit")) return undefined;
  const group = await call("GET", upstream, passing.path.replace(/\/commit$/, ""));
  if (group.status !== 200) return undefined;
  const { cursors } = JSON.parse(group.text) as { readonly cursors: readonly Members[] };
  const body = JSON.parse(passing.body.toString()) as {
    member: unknown;
    readonly commits: { readonly stream: unknown; token: unknown }[];
  };
  for (const commit of body.commits) {
    const cursor = cursors.find(({ stream }) => stream === commit.stream);
    if (cursor?.["member"] === undefined) continue;
    commit.token = cursor["token"];
    body.member = cursor["member"];
  }
  passing.body = Buffer.from(JSON.stringify(body));
  return undefined;
}

const done = (status: number, value?: unknown): Passed => ({
  status,
  headers: { "content-type": "application/json" },
  body: value === undefined ? "" : JSON.stringify(value),
});

export const brokenGroups: readonly Broken[] = [
  {
    rule: "a server that gives one token to all",
    wrong: {
      answer: claimed((claim) => ({
        ...claim,
        leases: (claim["leases"] as readonly Members[]).map((lease) => ({ ...lease, token: 7 })),
      })),
    },
    seenBy: [
      "§20 tokens only grow, also when a group is deleted and made again",
      "§20.2 a member that is alone gets all streams, with tokens and offsets",
      "§20.2 a stream is handed over when it is asked back, under a higher token",
    ],
  },
  {
    rule: "a server that takes every token",
    wrong: { instead: asHolder },
    seenBy: [
      "§20.3 a token that is not the current one refuses all commits of the call",
      "§20.3 the token of another member does not count",
      "§20.2 a stream is handed over when it is asked back, under a higher token",
    ],
  },
  {
    rule: "a server that gives all leases anew with each claim",
    wrong: {
      async instead(passing, upstream) {
        if (!isAct(passing, "claim")) return undefined;
        const root = passing.path.replace(/\/claim$/, "");
        const headers = { "Content-Type": "application/json" };
        const { member } = JSON.parse(passing.body.toString()) as Members;
        const group = await call("GET", upstream, root);
        if (group.status !== 200) return undefined;
        const { cursors } = JSON.parse(group.text) as { readonly cursors: readonly Members[] };
        const leases = cursors.filter((cursor) => cursor["member"] === member);
        const body = JSON.stringify({ member, leases });
        await call("POST", upstream, `${root}/release`, { headers, body });
        return undefined;
      },
    },
    seenBy: [
      "§20.2 the retry of a claim whose answer was lost has the same answer",
      "§20.3 in a transaction a commit and its output are one",
    ],
  },
  {
    rule: "a server that asks nothing back",
    wrong: { answer: claimed((claim) => ({ ...claim, handOver: [] })) },
    seenBy: [
      "§20.2 a stream is handed over when it is asked back, under a higher token",
      "§20.2 streams are shared by equal parts, the first members getting one more",
    ],
  },
  {
    rule: "a server that lets offsets go back, or pretends to",
    wrong: {
      async answer(passed, passing) {
        const isBack = passed.body.includes("offset_regressed");
        return isAct(passing, "commit") && isBack ? done(200, { handOver: [] }) : passed;
      },
    },
    seenBy: ["§20.3 an offset goes neither back nor beyond the tail"],
  },
  {
    rule: "a server that keeps a deleted group",
    wrong: {
      async instead({ method, path }) {
        return method === "DELETE" && path.startsWith(ROOT) ? done(204) : undefined;
      },
    },
    seenBy: ["§20 a deleted group is gone, with its members and offsets"],
  },
  {
    rule: "a server whose reset moves nothing",
    wrong: {
      async instead(passing) {
        return isAct(passing, "reset") ? done(200, { streams: 2 }) : undefined;
      },
    },
    seenBy: [
      "§20.4 a reset moves the offsets of all streams, or of one, also back",
      "§20.4 a reset that is not possible changes nothing",
    ],
  },
  {
    rule: "a server whose members never leave",
    wrong: {
      async instead(passing) {
        return isAct(passing, "leave") ? done(204) : undefined;
      },
    },
    seenBy: [
      "§20.2 what a member that leaves has held is free at once, and the member is lost",
      "§20.3 a commit moves offsets, and the next holder begins there",
    ],
  },
];
