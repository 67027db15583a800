/** How nodes of a cluster prove to each other that they know the key. docs/decisions/0085-peers-share-a-key.md */

/** With forward secrecy: who learns the key later cannot read what was recorded. */
export const PEER_TLS = {
  ciphers: "ECDHE-PSK-CHACHA20-POLY1305",
  minVersion: "TLSv1.2",
  maxVersion: "TLSv1.2",
} as const;
export const PEER_IDENTITY = "hapax-peer";
/** The side that connects. */
export function peerTlsOf(key: Buffer) {
  return {
    ...PEER_TLS,
    pskCallback: () => ({ psk: key, identity: PEER_IDENTITY }),
    // The key is the proof of both sides.
    checkServerIdentity: () => undefined,
  };
}

/** After so long without a byte the system asks whether the other machine is there: live answers have no end of their own. */
export const KEEP_ALIVE_MS = 10_000;
