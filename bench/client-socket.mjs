/**
 * The least that a transport can do, as the limit: one request at a time on raw sockets, and answers that have a
 * Content-Length or no body. Not for use.
 */

import { connect } from "node:net";

const END_OF_HEAD = Buffer.from("\r\n\r\n");

export function socketTransport() {
  const idle = [];
  return ({ method, url, headers, body }) => {
    const { host, hostname, port, pathname, search } = new URL(url);
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    const head = `${method} ${pathname}${search} HTTP/1.1\r\nHost: ${host}\r\n${lines.join("")}`;
    return new Promise((resolve, reject) => {
      const socket = idle.pop() ?? connect({ host: hostname, port: Number(port), noDelay: true });
      let bytes = Buffer.alloc(0);
      const take = (chunk) => {
        bytes = bytes.length === 0 ? chunk : Buffer.concat([bytes, chunk]);
        const end = bytes.indexOf(END_OF_HEAD);
        if (end === -1) return;
        const answer = parse(bytes.latin1Slice(0, end));
        const length = method === "HEAD" ? 0 : Number(answer.header("content-length") ?? 0);
        if (bytes.length < end + 4 + length) return;
        socket.off("data", take);
        socket.off("error", reject);
        idle.push(socket);
        const content = new Uint8Array(bytes.subarray(end + 4, end + 4 + length));
        resolve({ ...answer, bytes: async () => content, discard: () => undefined });
      };
      socket.on("data", take);
      socket.on("error", reject);
      socket.cork();
      socket.write(`${head}Content-Length: ${body?.length ?? 0}\r\n\r\n`, "latin1");
      if (body !== undefined) socket.write(body);
      socket.uncork();
    });
  };
}

function parse(head) {
  const [first, ...lines] = head.split("\r\n");
  const headers = new Map(
    lines.map((line) => {
      const colon = line.indexOf(":");
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
    }),
  );
  return { status: Number(first.slice(9, 12)), header: (name) => headers.get(name) };
}
