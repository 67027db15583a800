/** PORT. Sends a request to the node that owns its shard. */

import type { ClientCertificate } from "../access/identity.ts";
import type { ShardId } from "../core/placement.ts";
import type { AnswerShare } from "../server/answer-budget.ts";
import type { ServerAnswer } from "../server/exchange.ts";

export interface PeerRequest {
  readonly shard: ShardId;
  readonly method: string;
  /** Path and query, as sent. */
  readonly target: string;
  /** Names and values in turn, as sent. */
  readonly lines: readonly string[];
  readonly body: Uint8Array | undefined;
  /** What only the node that took the request has seen: the owner decides by it who the client is. */
  readonly client: {
    readonly address: string;
    readonly certificate: ClientCertificate | undefined;
    readonly baseUrl: string;
    /** The host that it sent the request to. */
    readonly authority: string | undefined;
  };
  /** The body of the answer must be there when it is given: it is put together with others. */
  readonly wantsWhole: boolean;
  /** Waits for the memory that so many bytes of an answer take until the client has them. */
  readonly room: (bytes: number) => Promise<AnswerRoom>;
  /** Ends the wait. */
  readonly signal: AbortSignal;
}

export type AnswerRoom = Pick<AnswerShare, "release" | "onCut">;

/**
 * `moved`: the other node does not own the shard, and has done nothing. `unsent`: nothing has reached it. `lost`: it may have done
 * the call, or not.
 */
export type PeerOutcome =
  | { readonly kind: "answered"; readonly answer: ServerAnswer }
  | { readonly kind: "moved" }
  | { readonly kind: "unsent" }
  | { readonly kind: "lost" };

export interface Peers {
  /** Rejects if the answer must be whole and is larger than any that is right. */
  send(peer: string, request: PeerRequest): Promise<PeerOutcome>;
  /** Asks a node to look whether a shard is its own by now. */
  nudge(peer: string): void;
}

/** What becomes of a connection that is kept to another node. */
export interface PeerEvents {
  /** It is there. */
  readonly onOpen: () => void;
  /** It has ended without a word of the other side. */
  readonly onBroken: () => void;
  /** An attempt to make it has failed. `isKeyRefused`: the other side has another key, or is none. */
  readonly onFailed: (reason: string, isKeyRefused: boolean) => void;
}

/** PORT. Notices the end of other nodes. */
export interface PeerWatch {
  /** Keeps a connection to a node, so that both see when it ends. Returns what ends it. */
  watch(peer: string, events: PeerEvents): () => void;
  /** Whether the machine of a node says that nothing listens at its port. */
  isRefused(peer: string): Promise<boolean>;
}
