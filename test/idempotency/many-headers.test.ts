// node:http drops headers behind the 1,000th in silence, and the key may be one of them: such a request is refused.
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { serve } from "@hono/node-server";
import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import { expect, test } from "vitest";
import { createIdempotency, GLOBAL } from "../../src/toolkit/idempotency.ts";
import { fastifyIdempotency } from "../../src/toolkit/idempotency/fastify.ts";
import { honoIdempotency } from "../../src/toolkit/idempotency/hono.ts";
import { expressIdempotency, withIdempotency } from "../../src/toolkit/idempotency/node.ts";
import { memoryLedger } from "../../src/toolkit/ledgers/memory.ts";
import { sendRaw } from "../protocol/raw-http.ts";

type Paid = () => void;

const openEngine = () => createIdempotency(memoryLedger(), { scope: GLOBAL, isRequired: false });

const frameworks: readonly [string, (paid: Paid) => Promise<Server>][] = [
  [
    "node:http",
    async (paid) =>
      createServer(
        withIdempotency(openEngine(), (_request, response) => {
          paid();
          response.end("paid");
        }),
      ),
  ],
  [
    "Express",
    async (paid) => {
      const app = express();
      app.post(
        "/pay",
        expressIdempotency(openEngine(), (_request, response) => {
          paid();
          response.end("paid");
        }),
      );
      return createServer(app);
    },
  ],
  [
    "Fastify",
    async (paid) => {
      const app = fastify();
      await app.register(fastifyIdempotency(openEngine()));
      app.post("/pay", async () => {
        paid();
        return "paid";
      });
      await app.ready();
      return app.server;
    },
  ],
  [
    "Hono",
    async (paid) => {
      const app = new Hono();
      app.use(honoIdempotency(openEngine()));
      app.post("/pay", (c) => {
        paid();
        return c.text("paid");
      });
      const server = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" });
      return server as Server; // Without HTTP/2 it is one.
    },
  ],
];

test.each(frameworks)(
  "a key that %s does not see is no reason to work twice",
  async (_name, open) => {
    let payments = 0;
    const server = await open(() => (payments += 1));
    if (!server.listening) {
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    }
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const start = "POST /pay HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n";
    const key = "Idempotency-Key: k\r\n\r\n";
    for (let attempt = 0; attempt < 2; attempt += 1) {
      const answer = await sendRaw(url, `${start}${"a:\r\n".repeat(1500)}${key}`);
      expect(answer?.status).toBe(431);
    }
    expect(payments).toBe(0);
    for (let attempt = 0; attempt < 2; attempt += 1) {
      expect((await sendRaw(url, `${start}${"a:\r\n".repeat(900)}${key}`))?.status).toBe(200);
    }
    expect(payments).toBe(1);
    server.closeAllConnections();
    server.close();
  },
);
