/**
 * One sample request for every operation of the table of routes, and what a caller needs for it. The needs are written here by
 * hand, from PROTOCOL.md §21 and not from the table, so that a mistake in the table is seen. A route without a sample fails the
 * matrix.
 */

import type { Action } from "../../src/streams/access/identity.ts";

/** A status, and the code of the refusal if it is one. */
export type Outcome = readonly [status: number, code?: string];

/** Names that only one case uses. */
export interface Names {
  /** In every name of the case. */
  readonly mark: string;
  readonly stream: string;
  readonly wakes: string;
  readonly group: string;
  readonly subscription: string;
  readonly producer: string;
  readonly key: string;
}

export interface SampleRequest {
  readonly target: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** What the preparation has learned, such as the token of a lease. */
export type Facts = Readonly<Record<string, unknown>>;

/** Sends a request of the owner, and expects it to succeed. */
export type AsOwner = (method: string, request: SampleRequest) => Promise<Facts>;

/** A receiver of webhooks. */
export interface Receiver {
  readonly url: string;
  /** Resolves with the next wake of the subscription. */
  wakeOf(subscription: string): Promise<Facts>;
}

export interface Sample {
  /** One of these actions, `nothing`, or `token`: the token of a wake or a claim. */
  readonly needs: readonly Action[] | "nothing" | "token";
  /** Actions that the names in head and body need as well, all of them. */
  readonly also?: readonly Action[];
  /**
   * What the request names. `inside`: a stream within the body. `follows`: streams of a group or a subscription that it creates or extends. `kept`: a group, a
   * subscription or a transaction that belongs to a namespace and is there already.
   */
  readonly names?: readonly (
    | "stream"
    | "producer"
    | "group"
    | "subscription"
    | "follows"
    | "inside"
    | "kept"
  )[];
  readonly prepare?: (names: Names, owner: AsOwner, receiver: Receiver) => Promise<Facts | void>;
  readonly request: (names: Names, facts: Facts) => SampleRequest;
  /** Only a grant without limits, of an identity without a namespace, allows it. */
  readonly needsWholeServer?: true;
  /** The answer to a caller that may do it. */
  readonly right: Outcome;
  /** The answer to a caller for whom the group, subscription or transaction is not there. Default: `right`. */
  readonly apart?: Outcome;
}

const JSON_TYPE = { "Content-Type": "application/json" };
const CLOSED = { "Stream-Closed": "true" };
const CONTROL = "/v1/stream/__ds";

const plain = (target: string, needs: Sample["needs"], status = 200): Sample => ({
  needs,
  request: () => ({ target }),
  right: [status],
});

async function makeStream({ stream }: Names, owner: AsOwner): Promise<void> {
  await owner("PUT", { target: stream, headers: JSON_TYPE, body: "[1]" });
}

const ofStream = (needs: readonly Action[], more: Pick<Sample, "request" | "right">): Sample => ({
  needs,
  names: ["stream"],
  prepare: makeStream,
  ...more,
});

const asProducer = (producer: string): Record<string, string> => ({
  "Producer-Id": producer,
  "Producer-Epoch": "0",
  "Producer-Seq": "0",
});

const lookAtProducers: Sample = {
  ...ofStream(["admin"], {
    request: ({ stream }) => ({ target: `/_hapax/producers?stream=${stream}` }),
    right: [200],
  }),
};

const lookAtStream = ofStream(["read"], {
  request: ({ stream }) => ({ target: `/_hapax/stream?stream=${stream}` }),
  right: [200],
});

/** Of a closed stream, so that the answer ends. */
const followStreams: Sample = {
  ...ofStream(["read"], {
    request: ({ stream }) => ({ target: `/_hapax/follow?stream=${stream}&offset=-1` }),
    right: [200],
  }),
  prepare: async ({ stream }, owner) => {
    await owner("PUT", { target: stream, headers: { ...JSON_TYPE, ...CLOSED }, body: "[1]" });
  },
};

const lookAtKey = ofStream(["read"], {
  request: ({ stream, key }) => ({
    target: `/_hapax/keys?stream=${stream}`,
    headers: { "Idempotency-Key": key },
  }),
  right: [200],
});

const lookAtTokens: Sample = { ...plain("/_hapax/tokens", ["admin"]), needsWholeServer: true };

const lookAtCluster: Sample = {
  ...plain("/_hapax/cluster", ["observe"]),
  needsWholeServer: true,
};

/** A store in memory has no backups, and none is running. */
const ofBackups = (target: string, right: Outcome): Sample => ({
  ...plain(target, ["admin"]),
  needsWholeServer: true,
  right,
});

const readOfBackup = (what: string) => {
  const sample = ofBackups(`/_hapax/backups/none/${what}/1`, [410, "backup_over"]);
  return { GET: sample, HEAD: sample };
};

/* Transactions. */

const OPERATION_NEEDS = ["append", "create", "close", "consume", "subscribe"] as const;

const commitOf = ({ stream }: Names): string =>
  JSON.stringify({ operations: [{ append: { stream, data: [2] } }] });

const lookAtTransaction: Sample = {
  needs: OPERATION_NEEDS,
  names: ["kept"],
  prepare: async (names, owner) => {
    await makeStream(names, owner);
    const headers = { ...JSON_TYPE, "Idempotency-Key": names.key };
    await owner("POST", { target: "/_hapax/transactions", headers, body: commitOf(names) });
  },
  request: ({ key }) => ({ target: `/_hapax/transactions/${key}` }),
  right: [200],
  apart: [404, "transaction_not_found"],
};

const lookAtProducersTransaction: Sample = {
  ...lookAtTransaction,
  names: ["kept", "producer"],
  prepare: async (names, owner) => {
    await makeStream(names, owner);
    const headers = { ...JSON_TYPE, ...asProducer(names.producer) };
    await owner("POST", { target: "/_hapax/transactions", headers, body: commitOf(names) });
  },
  request: ({ producer }) => ({ target: `/_hapax/transactions/${producer}?seq=0&epoch=0` }),
};

/* Groups. */

const NO_GROUP: Outcome = [404, "group_not_found"];

const groupTarget = ({ group }: Names, rest = ""): string => `/_hapax/groups/${group}${rest}`;

async function makeGroup(names: Names, owner: AsOwner): Promise<void> {
  await makeStream(names, owner);
  const body = JSON.stringify({ streams: [names.stream] });
  await owner("PUT", { target: groupTarget(names), headers: JSON_TYPE, body });
}

async function joinGroup(names: Names, owner: AsOwner): Promise<Facts> {
  await makeGroup(names, owner);
  const { member } = await owner("POST", { target: groupTarget(names, "/join"), body: "{}" });
  const body = JSON.stringify({ member });
  const { leases } = await owner("POST", { target: groupTarget(names, "/claim"), body });
  const [lease] = leases as readonly { readonly stream: string; readonly token: number }[];
  return { member, token: lease?.token };
}

async function joinJobs(names: Names, owner: AsOwner): Promise<Facts> {
  await makeStream(names, owner);
  const body = JSON.stringify({ streams: [names.stream], jobs: true });
  await owner("PUT", { target: groupTarget(names), headers: JSON_TYPE, body });
  const { member } = await owner("POST", { target: groupTarget(names, "/join"), body: "{}" });
  return { member };
}

const ofGroup = (more: Partial<Sample> & Pick<Sample, "request" | "right">): Sample => ({
  needs: ["consume"],
  names: ["group", "kept"],
  prepare: makeGroup,
  apart: NO_GROUP,
  ...more,
});

const lookAtGroup = ofGroup({
  request: (names) => ({ target: groupTarget(names) }),
  right: [200],
});

const groupAct = (
  name: string,
  right: Outcome,
  body: (names: Names, facts: Facts) => object,
  more: Partial<Sample> = {},
): Sample =>
  ofGroup({
    prepare: joinGroup,
    request: (names, facts) => ({
      target: groupTarget(names, `/${name}`),
      headers: JSON_TYPE,
      body: JSON.stringify(body(names, facts)),
    }),
    right,
    ...more,
  });

/* Subscriptions. */

const NO_SUBSCRIPTION: Outcome = [404, "subscription_not_found"];

const subscriptionTarget = ({ subscription }: Names, rest = ""): string =>
  `${CONTROL}/subscriptions/${subscription}${rest}`;

const relative = (path: string): string => path.slice("/v1/stream/".length);

const pullWake = ({ stream, wakes }: Names): string =>
  JSON.stringify({
    type: "pull-wake",
    streams: [relative(stream)],
    wake_stream: relative(wakes),
  });

async function makeSubscription(names: Names, owner: AsOwner): Promise<void> {
  await makeStream(names, owner);
  await owner("PUT", { target: subscriptionTarget(names), body: pullWake(names) });
}

async function makeWork(names: Names, owner: AsOwner): Promise<void> {
  await makeSubscription(names, owner);
  await owner("POST", { target: names.stream, headers: JSON_TYPE, body: "2" });
}

async function claimWork(names: Names, owner: AsOwner): Promise<Facts> {
  await makeWork(names, owner);
  return owner("POST", { target: subscriptionTarget(names, "/claim"), body: '{"worker":"w"}' });
}

async function awaitWebhook(names: Names, owner: AsOwner, receiver: Receiver): Promise<Facts> {
  await makeStream(names, owner);
  const arriving = receiver.wakeOf(names.subscription);
  const { url } = receiver;
  const body = { type: "webhook", streams: [relative(names.stream)], webhook: { url } };
  await owner("PUT", { target: subscriptionTarget(names), body: JSON.stringify(body) });
  await owner("POST", { target: names.stream, headers: JSON_TYPE, body: "2" });
  const { callback_token: token, wake_id, generation } = await arriving;
  return { token, wake_id, generation };
}

const ofSubscription = (more: Partial<Sample> & Pick<Sample, "request" | "right">): Sample => ({
  needs: ["subscribe"],
  names: ["subscription", "kept"],
  prepare: makeSubscription,
  apart: NO_SUBSCRIPTION,
  ...more,
});

const report = (name: string, right: Outcome, prepare: Sample["prepare"]): Sample => ({
  needs: "token",
  ...(prepare === undefined ? {} : { prepare }),
  request: (names, { wake_id = "none", generation = 1 }) => ({
    target: subscriptionTarget(names, `/${name}`),
    body: JSON.stringify({ wake_id, generation, ...(name === "release" ? {} : { acks: [] }) }),
  }),
  right,
});

const transaction = (also: Action, operation: (names: Names) => object): Sample => ({
  needs: OPERATION_NEEDS,
  also: [also],
  names: ["inside"],
  prepare: makeStream,
  request: (all) => ({
    target: "/_hapax/transactions",
    headers: { ...JSON_TYPE, "Idempotency-Key": all.key },
    body: JSON.stringify({ operations: [operation(all)] }),
  }),
  right: [200],
});

/**
 * By path and method, as the table of routes has them. Words behind a method tell variants apart: what else the head or the body
 * can ask for.
 */
export const SAMPLES: Readonly<Record<string, Readonly<Record<string, Sample>>>> = {
  "/": { GET: plain("/", "nothing"), HEAD: plain("/", "nothing") },
  "/healthz": { GET: plain("/healthz", "nothing"), HEAD: plain("/healthz", "nothing") },
  "/livez": { GET: plain("/livez", "nothing"), HEAD: plain("/livez", "nothing") },
  "/readyz": { GET: plain("/readyz", "nothing"), HEAD: plain("/readyz", "nothing") },
  "/favicon.ico": {
    GET: plain("/favicon.ico", "nothing", 204),
    HEAD: plain("/favicon.ico", "nothing", 204),
  },
  "/metrics": { GET: plain("/metrics", ["observe"]), HEAD: plain("/metrics", ["observe"]) },
  "/_hapax/health": {
    GET: plain("/_hapax/health", "nothing"),
    HEAD: plain("/_hapax/health", "nothing"),
  },
  "/_hapax/metrics": {
    GET: plain("/_hapax/metrics", ["observe"]),
    HEAD: plain("/_hapax/metrics", ["observe"]),
  },
  "/_hapax/openapi.json": {
    GET: plain("/_hapax/openapi.json", "nothing"),
    HEAD: plain("/_hapax/openapi.json", "nothing"),
  },
  "/_hapax/streams": {
    GET: plain("/_hapax/streams?limit=3", ["read"]),
    HEAD: plain("/_hapax/streams?limit=3", ["read"]),
  },
  "/_hapax/stream": { GET: lookAtStream, HEAD: lookAtStream },
  "/_hapax/follow": { GET: followStreams },
  "/_hapax/keys": { GET: lookAtKey, HEAD: lookAtKey },
  "/_hapax/subscriptions": {
    GET: plain("/_hapax/subscriptions?limit=3", ["subscribe"]),
    HEAD: plain("/_hapax/subscriptions?limit=3", ["subscribe"]),
  },
  "/_hapax/tokens": { GET: lookAtTokens, HEAD: lookAtTokens },
  "/_hapax/cluster": { GET: lookAtCluster, HEAD: lookAtCluster },
  "/_hapax/backups": { POST: ofBackups("/_hapax/backups", [501, "unsupported"]) },
  "/_hapax/backups/{backup}": { DELETE: ofBackups("/_hapax/backups/none", [204]) },
  "/_hapax/backups/{backup}/segments/{segment}": readOfBackup("segments"),
  "/_hapax/backups/{backup}/snapshots/{lsn}": readOfBackup("snapshots"),
  // Sources have no dashboard: the build adds it.
  "/_hapax/ui": {
    GET: plain("/_hapax/ui", "nothing", 308),
    HEAD: plain("/_hapax/ui", "nothing", 308),
  },
  ...Object.fromEntries(
    ["", "app.js", "app.css"].map((name) => {
      const sample: Sample = {
        ...plain(`/_hapax/ui/${name}`, "nothing"),
        right: [404, "not_found"],
      };
      return [`/_hapax/ui/${name}`, { GET: sample, HEAD: sample }];
    }),
  ),
  "/_hapax/transactions": {
    POST: {
      needs: OPERATION_NEEDS,
      also: ["append"],
      names: ["inside", "producer"],
      prepare: makeStream,
      request: (names) => ({
        target: "/_hapax/transactions",
        headers: { ...JSON_TYPE, ...asProducer(names.producer) },
        body: commitOf(names),
      }),
      right: [200],
    },
    "POST create": transaction("create", ({ stream }) => ({
      create: { stream: `${stream}-new`, contentType: "text/plain" },
    })),
    "POST close": transaction("close", ({ stream }) => ({ close: { stream } })),
    "POST expect": transaction("read", ({ stream }) => ({
      expect: { stream: `${stream}-new`, absent: true },
    })),
  },
  "/_hapax/transactions/{identity...}": {
    GET: lookAtTransaction,
    HEAD: lookAtProducersTransaction,
  },
  "/_hapax/groups": {
    GET: plain("/_hapax/groups?limit=3", ["consume"]),
    HEAD: plain("/_hapax/groups?limit=3", ["consume"]),
  },
  "/_hapax/groups/{group}": {
    GET: lookAtGroup,
    HEAD: lookAtGroup,
    PUT: {
      needs: ["consume"],
      names: ["group", "follows"],
      prepare: makeStream,
      request: (names) => ({
        target: groupTarget(names),
        headers: JSON_TYPE,
        body: JSON.stringify({ streams: [names.stream] }),
      }),
      right: [201],
    },
    DELETE: ofGroup({
      needs: ["admin"],
      request: (names) => ({ target: groupTarget(names) }),
      right: [204],
      apart: [204],
    }),
  },
  "/_hapax/groups/{group}/join": { POST: groupAct("join", [201], () => ({})) },
  "/_hapax/groups/{group}/claim": {
    POST: groupAct("claim", [200], (_, { member = "m" }) => ({ member })),
  },
  "/_hapax/groups/{group}/commit": {
    POST: groupAct("commit", [200], ({ stream }, { member = "m", token = 1 }) => ({
      member,
      commits: [{ stream, token }],
    })),
  },
  "/_hapax/groups/{group}/release": {
    POST: groupAct("release", [204], ({ stream }, { member = "m", token = 1 }) => ({
      member,
      leases: [{ stream, token }],
    })),
  },
  // A group of streams gives no jobs. That jobs need `read` too is in the tests of grants.
  "/_hapax/groups/{group}/take": {
    POST: groupAct("take", [400, "invalid_request"], (_, { member = "m" }) => ({ member })),
  },
  "/_hapax/groups/{group}/settle": {
    POST: groupAct("settle", [200], (_, { member = "m" }) => ({ member }), { prepare: joinJobs }),
  },
  "/_hapax/groups/{group}/leave": {
    POST: groupAct("leave", [204], (_, { member = "m" }) => ({ member })),
  },
  "/_hapax/groups/{group}/reset": {
    POST: groupAct("reset", [200], () => ({ to: "beginning" }), { needs: ["admin"] }),
  },
  "/_hapax/trim": {
    POST: ofStream(["delete"], {
      request: ({ stream }) => ({
        target: `/_hapax/trim?stream=${stream}&before=0000000000000000_0000000000000000`,
      }),
      right: [204],
    }),
  },
  "/_hapax/retention": {
    PUT: ofStream(["delete"], {
      request: ({ stream }) => ({
        target: `/_hapax/retention?stream=${stream}`,
        headers: { "Stream-Retention": "bytes=1000" },
      }),
      right: [204],
    }),
  },
  "/_hapax/compaction": {
    PUT: ofStream(["delete"], {
      request: ({ stream }) => ({
        target: `/_hapax/compaction?stream=${stream}`,
        headers: { "Stream-Compact-Key": "id" },
      }),
      right: [204],
    }),
  },
  "/_hapax/producers": {
    GET: lookAtProducers,
    HEAD: lookAtProducers,
    POST: plain("/_hapax/producers", ["append"], 201),
  },
  "/_hapax/producers/{id...}": {
    DELETE: {
      needs: ["admin"],
      names: ["stream", "producer"],
      prepare: async (names, owner) => {
        await makeStream(names, owner);
        const headers = { ...JSON_TYPE, ...asProducer(names.producer) };
        await owner("POST", { target: names.stream, headers, body: "2" });
      },
      request: ({ stream, producer }) => ({
        target: `/_hapax/producers/${producer}?stream=${stream}`,
      }),
      right: [204],
    },
  },
  [`${CONTROL}/jwks.json`]: { GET: plain(`${CONTROL}/jwks.json`, "nothing") },
  [`${CONTROL}/subscriptions/{id}`]: {
    GET: ofSubscription({
      request: (names) => ({ target: subscriptionTarget(names) }),
      right: [200],
    }),
    PUT: {
      needs: ["subscribe"],
      also: ["append"],
      names: ["subscription", "follows"],
      prepare: makeStream,
      request: (names) => ({ target: subscriptionTarget(names), body: pullWake(names) }),
      right: [201],
    },
    DELETE: ofSubscription({
      request: (names) => ({ target: subscriptionTarget(names) }),
      right: [204],
      apart: [204],
    }),
  },
  [`${CONTROL}/subscriptions/{id}/streams`]: {
    POST: ofSubscription({
      names: ["subscription", "follows", "kept"],
      request: (names) => ({
        target: subscriptionTarget(names, "/streams"),
        body: JSON.stringify({ streams: [relative(names.stream)] }),
      }),
      right: [204],
    }),
  },
  [`${CONTROL}/subscriptions/{id}/streams/{path...}`]: {
    DELETE: ofSubscription({
      request: (names) => ({
        target: subscriptionTarget(names, `/streams/${relative(names.stream)}`),
      }),
      right: [204],
    }),
  },
  [`${CONTROL}/subscriptions/{id}/claim`]: {
    POST: ofSubscription({
      prepare: makeWork,
      request: (names) => ({
        target: subscriptionTarget(names, "/claim"),
        body: '{"worker":"w"}',
      }),
      right: [200],
    }),
  },
  [`${CONTROL}/subscriptions/{id}/callback`]: { POST: report("callback", [200], awaitWebhook) },
  [`${CONTROL}/subscriptions/{id}/ack`]: { POST: report("ack", [200], claimWork) },
  [`${CONTROL}/subscriptions/{id}/release`]: { POST: report("release", [204], claimWork) },
  "/{stream...}": {
    GET: ofStream(["read"], { request: ({ stream }) => ({ target: stream }), right: [200] }),
    HEAD: ofStream(["read"], { request: ({ stream }) => ({ target: stream }), right: [200] }),
    POST: {
      needs: ["append", "close"],
      also: ["append"],
      names: ["stream", "producer"],
      prepare: makeStream,
      request: ({ stream, producer }) => ({
        target: stream,
        headers: { ...JSON_TYPE, ...asProducer(producer) },
        body: "2",
      }),
      right: [200],
    },
    "POST close": {
      needs: ["append", "close"],
      also: ["close"],
      names: ["stream"],
      prepare: makeStream,
      request: ({ stream }) => ({ target: stream, headers: CLOSED }),
      right: [204],
    },
    "POST append and close": {
      needs: ["append", "close"],
      also: ["append", "close"],
      names: ["stream"],
      prepare: makeStream,
      request: ({ stream }) => ({
        target: stream,
        headers: { ...JSON_TYPE, ...CLOSED },
        body: "2",
      }),
      right: [204],
    },
    PUT: {
      needs: ["create"],
      names: ["stream"],
      request: ({ stream }) => ({ target: `${stream}-new`, headers: JSON_TYPE }),
      right: [201],
    },
    "PUT closed": {
      needs: ["create"],
      also: ["close"],
      names: ["stream"],
      request: ({ stream }) => ({
        target: `${stream}-new`,
        headers: { ...JSON_TYPE, ...CLOSED },
      }),
      right: [201],
    },
    "PUT fork": {
      needs: ["create"],
      also: ["read"],
      names: ["stream"],
      prepare: makeStream,
      request: ({ stream }) => ({
        target: `${stream}-new`,
        headers: { "Stream-Forked-From": stream },
      }),
      right: [201],
    },
    DELETE: ofStream(["delete"], {
      request: ({ stream }) => ({ target: stream }),
      right: [204],
    }),
  },
};
