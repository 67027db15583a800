/** Faults of grants and namespaces: what would let an identity do more than its grants say. */

import type { Fault } from "./faults.ts";

const SPACES = "test/access/namespaces.test.ts";
const TENANTS = "test/access/tenants.test.ts";
const HIDDEN = "test/access/hidden.test.ts";
const GRANTS = "test/access/grants.test.ts";
const RULES = "src/streams/access/access.test.ts";
const ACCESS = "src/streams/access/access.ts";
const TRANSACTIONS = "src/streams/server/transactions.ts";

export const namespaceFaults: readonly Fault[] = [
  {
    name: "access: a namespace is compared by its letters",
    guarantee: "G40",
    file: ACCESS,
    find: 'return stream.startsWith(namespace) && stream[namespace.length] === "/";',
    replace: "return stream.startsWith(namespace);",
    caughtBy: {
      file: RULES,
      test: "G40 a namespace ends at a slash: /v1/stream/acme-2/a is in it: false",
    },
  },
  {
    name: "access: two grants together allow what none of them does",
    guarantee: "G40",
    file: ACCESS,
    find: "        matchesName(grant.producers, producer) &&\n",
    replace: "        this.#grants.some(({ producers }) => matchesName(producers, producer)) &&\n",
    caughtBy: {
      file: RULES,
      test: "one grant must allow all of a request: two halves are not enough",
    },
  },
  {
    name: "access: a star covers any number of segments",
    guarantee: "G40",
    file: "src/base/glob.ts",
    find: '(expected === "*" ? name[inName] !== MANY : decodeStars(expected) === name[inName])',
    replace: '(expected === "*" || decodeStars(expected) === name[inName])',
    caughtBy: { file: RULES, test: "the pattern /a/* covers /a/**: false" },
  },
  {
    name: "access: the log of transactions is common to all namespaces",
    guarantee: "G40",
    file: "src/streams/core/transaction-state.ts",
    find: 'return `${TRANSACTION_LOG}${namespace ?? ""}` as StreamName;',
    replace: "return TRANSACTION_LOG as StreamName;",
    caughtBy: {
      file: TENANTS,
      test: "G40 a namespace with many transactions pushes out no key of another one",
    },
  },
  {
    name: "access: groups are counted together for all namespaces",
    guarantee: "G40",
    file: "src/streams/engine/namespace-counts.ts",
    find: "    const { namespace } = splitScoped(kept);\n    const count",
    replace: "    const namespace: string | undefined = undefined;\n    const count",
    caughtBy: {
      file: "src/streams/engine/namespace-counts.test.ts",
      test: "G40 each namespace has a limit of its own, and so have identities without one",
    },
  },
  {
    name: "access: the keys of acts are common to all namespaces",
    guarantee: "G40",
    file: "src/streams/server/keyed-acts.ts",
    find: "parts.engine.transactions.act(claim, access.namespace);",
    replace: "parts.engine.transactions.act(claim);",
    caughtBy: { file: SPACES, test: "G40 a key of an act belongs to its namespace" },
  },
  {
    name: "access: a transaction commits for a group of no namespace",
    guarantee: "G40",
    file: TRANSACTIONS,
    find: "return { ...operation, lease: { ...lease, group } };",
    replace: "return { ...operation, lease: { ...lease, group: group && lease.group } };",
    caughtBy: {
      file: SPACES,
      test: "G40 a member of a group in a namespace commits in a transaction, as without namespaces",
    },
  },
  {
    name: "access: a transaction reaches a group that its sender may not see",
    guarantee: "G40",
    file: TRANSACTIONS,
    find: "const group = groups.get(lease.group)?.() ?? NO_NAME;",
    replace: "const group = access.scoped(lease.group);",
    caughtBy: {
      file: HIDDEN,
      test: "G40 every call of a hidden group or subscription is answered as if there were none",
    },
  },
  {
    name: "access: a call reaches a group that its sender may not see",
    guarantee: "G40",
    file: "src/streams/server/following.ts",
    find: "return () => (isShown && groups",
    replace: "return () => (groups",
    caughtBy: {
      file: HIDDEN,
      test: "G40 every call of a hidden group or subscription is answered as if there were none",
    },
  },
  {
    name: "access: a creation tells in what a hidden group differs",
    guarantee: "G40",
    file: "src/streams/server/groups.ts",
    find: 'isHidden ? "the name is taken" : ',
    replace: "",
    caughtBy: {
      file: HIDDEN,
      test: "G40 who creates a group or a subscription under the name of a hidden one learns only that it is taken",
    },
  },
  {
    name: "access: an answer about one group is used for another",
    guarantee: "G40",
    file: ACCESS,
    find: "return `${action} ${group}${BETWEEN}${subscription}`;",
    replace: "return `${action} ${BETWEEN}${subscription}${group.slice(group.length)}`;",
    caughtBy: {
      file: "src/streams/server/following.test.ts",
      test: "an answer about one group, action or caller is not used for another",
    },
  },
  {
    name: "access: only the first operation of a transaction is checked",
    guarantee: "G40",
    file: TRANSACTIONS,
    find: "for (const operation of parsed.operations) checkOperation(access, head, operation);",
    replace:
      "for (const operation of parsed.operations.slice(0, 1)) checkOperation(access, head, operation);",
    caughtBy: {
      file: GRANTS,
      test: "G40 one operation that is not allowed refuses the whole transaction, and nothing is stored",
    },
  },
  {
    name: "access: a fork reads what its maker may not read",
    guarantee: "G40",
    file: "src/streams/server/streams.ts",
    find: 'if (head.fork !== undefined) access.require("read", { stream: head.fork.sourceName });',
    replace: "",
    caughtBy: { file: GRANTS, test: "G40 a fork needs the right to read its source" },
  },
  {
    name: "access: the expiry of a remembered identity is not looked at",
    guarantee: "G40",
    file: "src/streams/server/gate.ts",
    find: "const isOver = access.expiresAtMs <= this.#options.clock.nowMs();",
    replace: "const isOver = access.expiresAtMs <= 0;",
    caughtBy: {
      file: GRANTS,
      test: "G40 an identity whose time is over is refused, also if the function still returns it",
    },
  },
  {
    name: "access: a credential that ends while a body comes is not looked at again",
    guarantee: "G40",
    file: "src/streams/server/request-body.ts",
    find: "  access.requireCurrent(parts.clock.nowMs());\n",
    replace: "",
    caughtBy: {
      file: "test/access/endings.test.ts",
      test: "a credential that expires > G40 while its body comes does nothing: PUT /{stream...}",
    },
  },
  {
    name: "access: a shared cache may keep the page of a guarded server",
    guarantee: "G40",
    file: "src/streams/server/reads.ts",
    find: "if (!access.isUnlimited) return PRIVATE;",
    replace: "",
    caughtBy: {
      file: GRANTS,
      test: "G40 pages of a server with authentication are kept by no shared cache",
    },
  },
];
