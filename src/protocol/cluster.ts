/** What is on the wire of a cluster alone. PROTOCOL.md §24. */

/** In answers: where the owner of the stream is reached directly. */
export const OWNER_HEADER = "Hapax-Owner";
/** In lower case, between nodes. What a client sends under this prefix goes no further. */
export const PEER_PREFIX = "hapax-peer-";
export const PEER = {
  shard: "hapax-peer-shard",
  address: "hapax-peer-address",
  certificate: "hapax-peer-certificate",
  baseUrl: "hapax-peer-base-url",
  /** In answers: the node does not own the shard, and has done nothing. */
  moved: "hapax-peer-moved",
} as const;
/** On the peer port alone: asks a node to look at the rows of the cluster. */
export const PEER_LOOK_PATH = "/_hapax/peer/look";
/** On the peer port alone: an answer that goes on until one of the two sides ends. */
export const PEER_WATCH_PATH = "/_hapax/peer/watch";
