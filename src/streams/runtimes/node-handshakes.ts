/** The sockets of a TLS listener whose handshake has not finished. Node has no list of them, and would wait for them at the end. */

import type { Server, Socket } from "node:net";

export class Handshakes {
  readonly #open = new Map<string, Socket>();
  readonly #all = new Set<Socket>();

  /** `openMax`: with more, the oldest of them end. */
  constructor(listener: Server, openMax = Infinity) {
    listener.on("connection", (socket: Socket) => {
      const peer = peerOf(socket);
      this.#open.set(peer, socket);
      const [oldest] = this.#open.values();
      if (this.#open.size > openMax) oldest?.destroy();
      this.#all.add(socket);
      socket.once("close", () => {
        this.#all.delete(socket);
        if (this.#open.get(peer) === socket) this.#open.delete(peer);
      });
    });
    listener.on("secureConnection", (socket: Socket) => this.#open.delete(peerOf(socket)));
  }

  /** Ends the sockets that have not finished their handshake. */
  drain(): void {
    for (const socket of this.#open.values()) socket.destroy();
  }

  /** Ends all sockets. */
  cut(): void {
    for (const socket of this.#all) socket.destroy();
  }
}

/** The socket of TLS is another object than the one below it. Both know the other side. */
function peerOf({ remoteAddress = "", remotePort = 0 }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}
