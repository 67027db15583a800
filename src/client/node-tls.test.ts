import { once } from "node:events";
import { Agent, createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import { nodeTransport } from "./node.ts";
import { selfSigned } from "../../test/kits/certificates.ts";

test("https works with an agent that trusts the server, and rejects without", async () => {
  const { key, cert } = selfSigned("localhost");
  const server = createServer({ key, cert }, (request, response) => {
    request.pipe(response);
  });
  server.listen(0);
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const url = `https://localhost:${String(port)}/`;
  const request = { method: "POST", url, headers: {}, body: new Uint8Array([1, 2, 3]) };
  const httpsAgent = new Agent({ keepAlive: true, ca: cert });
  try {
    const answer = await nodeTransport({ httpsAgent })(request);
    expect([answer.status, await answer.bytes()]).toEqual([200, request.body]);
    await expect(nodeTransport()(request)).rejects.toThrow("self-signed certificate");
  } finally {
    httpsAgent.destroy();
    server.close();
    server.closeAllConnections();
  }
});
