/**
 * A way that takes time, in a process of its own: `node bench/client-proxy.mjs <port> <delayMs>`. What a client sends
 * reaches the server so much later; answers come back at once. So a round trip takes that much more.
 */

import { connect, createServer } from "node:net";

const [port, delayMs] = process.argv.slice(2).map(Number);

const proxy = createServer({ noDelay: true }, (client) => {
  const server = connect({ port, host: "127.0.0.1", noDelay: true });
  const later = (run) => (delayMs === 0 ? run() : setTimeout(() => run(), delayMs));
  client.on("data", (chunk) => later(() => server.write(chunk)));
  client.on("end", () => later(() => server.end()));
  server.pipe(client);
  for (const socket of [client, server]) {
    socket.on("error", () => undefined);
    socket.on("close", () => {
      client.destroy();
      server.destroy();
    });
  }
});
process.on("message", () => process.exit(0));
process.on("disconnect", () => process.exit(0));
proxy.listen(0, "127.0.0.1", () => process.send({ kind: "ready", port: proxy.address().port }));
