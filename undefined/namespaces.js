/** Faults of grants and namespaces: what would let an identity do more than its grants say. */
const SPACES = "test/access/namespaces.test.ts";
const GRANTS = "test/access/grants.test.ts";
const RULES = "src/streams/access/access.test.ts";
const ACCESS = "src/streams/access/access.ts";
const TRANSACTIONS = "src/streams/server/transactions.ts";
export const namespaceFaults = [
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
        name: "access: the keys of transactions are common to all namespaces",
        guarantee: "G40",
        file: TRANSACTIONS,
        find: "parts.digest(keyBytes(access.scoped(key.text)))",
        replace: "parts.digest(keyBytes(key.text))",
        caughtBy: {
            file: SPACES,
            test: "G40 a key of a transaction belongs to its namespace",
        },
    },
    {
        name: "access: the keys of acts are common to all namespaces",
        guarantee: "G40",
        file: "src/streams/server/acts.ts",
        find: "parts.digest(keyBytes(access.scoped(key.text))),",
        replace: "parts.digest(keyBytes(key.text)),",
        caughtBy: { file: SPACES, test: "G40 a key of an act belongs to its namespace" },
    },
    {
        name: "access: a transaction commits for a group of no namespace",
        guarantee: "G40",
        file: TRANSACTIONS,
        find: "lease: { ...lease, group: access.scoped(lease.group) }",
        replace: "lease",
        caughtBy: {
            file: SPACES,
            test: "G40 a member of a group in a namespace commits in a transaction, as without namespaces",
        },
    },
    {
        name: "access: only the first operation of a transaction is checked",
        guarantee: "G40",
        file: TRANSACTIONS,
        find: "for (const operation of parsed.operations) checkOperation(access, head, operation);",
        replace: "for (const operation of parsed.operations.slice(0, 1)) checkOperation(access, head, operation);",
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
