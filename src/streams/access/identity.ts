/**
 * Who sends a request, and what they may do. The port of authorization: a function from a request to an identity or a refusal.
 * PROTOCOL.md §21.
 */

/**
 * What a client may do:
 *
 * | action | what it allows |
 * | --- | --- |
 * | `read` | read streams, look at them, list them, fork from them |
 * | `append` | append to streams, also in transactions |
 * | `create` | create streams |
 * | `close` | close streams |
 * | `delete` | delete streams, trim them, and set what they keep |
 * | `consume` | create groups, join them, claim and commit; shows the offsets of their streams, and no record |
 * | `subscribe` | create subscriptions, look at them, claim and delete them; shows the offsets of their streams, and no record |
 * | `admin` | reset groups and producers, delete groups, list producers |
 * | `observe` | see metrics and the reason why the server is not ready |
 */
export type Action = (typeof ACTIONS)[number];

/** Every action there is. */
export const ACTIONS = [
  "read",
  "append",
  "create",
  "close",
  "delete",
  "consume",
  "subscribe",
  "admin",
  "observe",
] as const;

/** One right of an identity: some actions on some resources. A member that is left out sets no limit. */
export interface Grant {
  readonly actions: readonly Action[];
  /**
   * Patterns of stream paths, such as `/v1/stream/orders/**`: `*` is one segment, `**` is any number of segments. Default: all
   * streams of the identity's namespace.
   */
  readonly streams?: readonly string[];
  /** Names of groups; a star at the end stands for any rest. Default: all. */
  readonly groups?: readonly string[];
  /** Ids of subscriptions; a star at the end stands for any rest. Default: all. */
  readonly subscriptions?: readonly string[];
  /** Ids of producers that appends and transactions may carry; a star at the end stands for any rest. Default: all. */
  readonly producers?: readonly string[];
}

/**
 * How much an identity may use. A quota that is left out has the server's default. Streams and bytes are counted for its
 * namespace, or for the whole server if it has none; all others for the identity itself.
 */
export interface Quotas {
  /** Streams that exist in its namespace. A creation beyond it answers 507. */
  readonly streamsMax?: number;
  /** Bytes of appends that the streams of its namespace hold. An append beyond it answers 507. */
  readonly storedBytesMax?: number;
  /** Requests that can write, in a second; a transaction counts each of its appends and creations. More answer 429. */
  readonly appendsPerSecond?: number;
  /** Bytes of the bodies of appends, creations and transactions in a second. More answer 429. */
  readonly bytesPerSecond?: number;
  /** Live readers and long-polls at once. */
  readonly liveReadersMax?: number;
  /** Requests that are not answered yet, at once. */
  readonly requestsMax?: number;
}

/** The names of all quotas. */
export const QUOTAS = [
  "streamsMax",
  "storedBytesMax",
  "appendsPerSecond",
  "bytesPerSecond",
  "liveReadersMax",
  "requestsMax",
] as const satisfies readonly (keyof Quotas)[];

/** A client that has proved who it is. */
export interface Identity {
  /** For logs, the audit log and metrics. Not a secret. */
  readonly name: string;
  readonly grants: readonly Grant[];
  /**
   * Confines the identity to streams below this path, such as `/v1/stream/acme`. Its groups, subscriptions, transactions and keys are
   * apart from those of all other namespaces. Default: none, the identity sees everything that its grants name.
   */
  readonly namespace?: string;
  readonly quotas?: Quotas;
  /**
   * From this time on the identity is refused, also if it was cached. Unix time in milliseconds. Default:
   * never.
   */
  readonly expiresAtMs?: number;
}

/** The parts of a request from which `authorize` can find out who sends it. */
export interface Credentials {
  readonly method: string;
  /** As sent: percent-encoded, without the query. */
  readonly path: string;
  /** As sent, without the question mark. */
  readonly query: string;
  /** By lower-case name. */
  readonly header: (name: string) => string | undefined;
  /** The address of the client, where the runtime knows it. */
  readonly peer?: string | undefined;
  /** The certificate that the client has proved to own, if TLS asked for one. */
  readonly certificate?: ClientCertificate | undefined;
}

/** A client's certificate that a configured authority has signed. */
export interface ClientCertificate {
  /** The common name of its subject. */
  readonly commonName: string | undefined;
  /** Names for which it is valid, such as `DNS:worker-1.internal`. */
  readonly names: readonly string[];
  /** SHA-256 of the certificate in lower-case hexadecimal digits. */
  readonly fingerprint: string;
}

/**
 * Why a request has no identity. `missing`: it has no credential. `invalid`: its credential is not valid here. `expired`: its
 * credential was valid once. `unavailable`: that cannot be decided now.
 */
export interface IdentityRefusal {
  readonly refused: "missing" | "invalid" | "expired" | "unavailable";
  /** A text for the client. It must not contain the credential. */
  readonly detail?: string;
}

/**
 * Finds out who sends a request. Return the same object for the same client where you can: the server then computes its rights
 * only once. A function that throws, returns something else or takes longer than `authorizeTimeoutMs` refuses the request.
 */
export type Authorize = (
  credentials: Credentials,
) => Identity | IdentityRefusal | Promise<Identity | IdentityRefusal>;
