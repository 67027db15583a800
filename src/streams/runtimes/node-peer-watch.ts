/** A connection to another node that is there to end with it: the system of a process that is gone ends it at once. */

import { request as httpsRequest } from "node:https";
import { connect } from "node:net";
import type { TLSSocket } from "node:tls";
import { PEER_WATCH_PATH } from "../../protocol/cluster.ts";
import type { PeerEvents } from "../cluster/peers.ts";
import { KEEP_ALIVE_MS, peerTlsOf } from "./node-peer-tls.ts";

const CONNECT_MS = 2000;
const AGAIN_MS = 500;
/** After a failure: nothing listens there, or it has another key. */
const FAILED_MS = 1000;

interface Address {
  readonly host: string;
  readonly port: number;
}

/** Keeps the connection until the returned function is called, and makes it again when it has ended. */
export function watchPeer(
  { key, host, port }: Address & { readonly key: Buffer },
  { onOpen, onBroken, onFailed }: PeerEvents,
): () => void {
  let isOver = false;
  let end = (): void => undefined;
  const begin = (): void => {
    let isOpen = false;
    let hasEnded = false;
    const asked = httpsRequest({
      agent: false,
      host,
      port,
      ...peerTlsOf(key),
      path: PEER_WATCH_PATH,
      headers: { host: `${host}:${port}` },
    });
    const connecting = setTimeout(() => asked.destroy(), CONNECT_MS);
    const ended = (isBroken: boolean, error?: NodeJS.ErrnoException): void => {
      if (hasEnded) return;
      hasEnded = true;
      clearTimeout(connecting);
      if (isOver) return;
      if (!isOpen) onFailed(error?.message ?? "no answer", isOfTls(error));
      const again = setTimeout(begin, isOpen ? AGAIN_MS : FAILED_MS);
      end = () => clearTimeout(again);
      if (isBroken) onBroken();
    };
    end = () => asked.destroy();
    asked.on("socket", (socket) => {
      (socket as TLSSocket).setKeepAlive(true, KEEP_ALIVE_MS);
    });
    asked.on("response", (answer) => {
      clearTimeout(connecting);
      isOpen = answer.statusCode === 200;
      if (isOpen && !isOver) onOpen();
      answer.resume();
      answer.on("error", () => undefined); // Its close follows.
      answer.on("close", () => ended(isOpen && !answer.complete));
    });
    asked.on("error", (error) => ended(isOpen, error));
    asked.end();
  };
  begin();
  return () => {
    isOver = true;
    end();
  };
}

/** Whether the two sides did not agree, and not the network or a process that is gone. */
function isOfTls(error: NodeJS.ErrnoException | undefined): boolean {
  return error?.code?.startsWith("ERR_SSL_") === true || error?.code === "EPROTO";
}

/** Whether the system at this address says that nothing listens. No answer at all is none. */
export function isRefused({ host, port }: Address): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const done = (is: boolean): void => {
      socket.destroy();
      resolve(is);
    };
    socket.setTimeout(CONNECT_MS, () => done(false));
    socket.once("connect", () => done(false));
    socket.once("error", (error: NodeJS.ErrnoException) => done(error.code === "ECONNREFUSED"));
  });
}
