/** A WebSocket of texts over `node:http`: Node 20 has no client of its own. For short texts and a friendly server alone. */

import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import type { Socket } from "node:net";

export interface FeedSocket {
  send(text: string): void;
  close(): void;
}

/** Opens a socket. `onText` gets every text that comes. */
export async function openSocket(url: string, onText: (text: string) => void): Promise<FeedSocket> {
  const opening = request(url, {
    headers: {
      connection: "Upgrade",
      upgrade: "websocket",
      "sec-websocket-version": "13",
      "sec-websocket-key": randomBytes(16).toString("base64"),
    },
  });
  opening.end();
  const [, socket, head] = (await once(opening, "upgrade")) as [IncomingMessage, Socket, Buffer];
  let held = head;
  const read = (chunk: Buffer): void => {
    held = Buffer.concat([held, chunk]);
    for (let frame = frameIn(held); frame !== undefined; frame = frameIn(held)) {
      held = held.subarray(frame.end);
      if (frame.isText) onText(frame.text);
    }
  };
  socket.on("data", read);
  socket.on("error", () => undefined); // The object was lost.
  read(Buffer.alloc(0));
  return {
    send: (text) => void socket.write(textFrame(text)),
    close: () => void socket.destroy(),
  };
}

/** The first whole frame. Frames of a server have no mask. */
function frameIn(bytes: Buffer) {
  if (bytes.length < 2) return undefined;
  const short = bytes.readUInt8(1);
  if (short === 127) throw new Error("longer than any text of the test");
  const start = short === 126 ? 4 : 2;
  if (bytes.length < start) return undefined;
  const end = start + (short === 126 ? bytes.readUInt16BE(2) : short);
  if (bytes.length < end) return undefined;
  const isText = (bytes.readUInt8(0) & 0x0f) === 1;
  return { isText, text: bytes.subarray(start, end).toString(), end };
}

/** With a mask of zeros, which leaves the text as it is. */
function textFrame(text: string): Buffer {
  const payload = Buffer.from(text);
  if (payload.length > 125) throw new Error("longer than any text of the test");
  return Buffer.concat([Buffer.from([0x81, 0x80 | payload.length, 0, 0, 0, 0]), payload]);
}
