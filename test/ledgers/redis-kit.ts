/** What the tests of the Redis ledger share: the servers that can be had here, and the clients. */

import { GlideClient, GlideClusterClient } from "@valkey/valkey-glide";
import { Cluster, Redis } from "ioredis";
import { Cluster as ValkeyCluster, Redis as Valkey } from "iovalkey";
import { createClient, createCluster } from "redis";
import { afterEach, vi } from "vitest";
import type { RedisClient } from "../../src/toolkit/databases/redis.ts";
import { DURABLE, startRedis, type TestRedis } from "../databases/redis.ts";
import { findRedisPrograms, type RedisProgram } from "../databases/redis-programs.ts";

export const { programs, missing } = findRedisPrograms();
if (missing.length > 0 && process.env["CI"] === "true") throw new Error(missing.join("; "));
for (const reason of missing) console.log(`skipped: a ledger in Redis: ${reason}`);

/** The server for what one server shows as well as three: the newest that is here. */
export const newest: RedisProgram | undefined = programs.at(-1);

// Servers and clients share a busy machine; a test takes a second or two on a quiet one.
vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

export interface OpenedClient {
  readonly client: RedisClient;
  readonly end: () => void;
}

/** The clients of Node, for one server. */
export const CLIENTS: Readonly<Record<string, (url: string) => Promise<OpenedClient>>> = {
  async ioredis(url) {
    const client = new Redis(url, { retryStrategy: () => 20 });
    client.on("error", () => undefined); // Tests kill servers.
    return {
      client,
      end: () => {
        client.disconnect();
      },
    };
  },
  async redis(url) {
    const client = createClient({ url, socket: { reconnectStrategy: () => 20 } });
    client.on("error", () => undefined);
    await client.connect();
    return {
      client,
      end: () => {
        client.destroy();
      },
    };
  },
  async iovalkey(url) {
    const client = new Valkey(url, { retryStrategy: () => 20 });
    client.on("error", () => undefined);
    return {
      client,
      end: () => {
        client.disconnect();
      },
    };
  },
  async GLIDE(url) {
    const { hostname: host, port } = new URL(url);
    const addresses = [{ host, port: Number(port) }];
    const client = await GlideClient.createClient({ addresses });
    return {
      client,
      end: () => {
        client.close();
      },
    };
  },
};

/** The clients of Node, for a cluster. */
export const CLUSTER_CLIENTS: Readonly<
  Record<string, (ports: readonly number[]) => Promise<OpenedClient>>
> = {
  async ioredis(ports) {
    const client = new Cluster(ports.map((port) => ({ host: "127.0.0.1", port })));
    return {
      client,
      end: () => {
        client.disconnect();
      },
    };
  },
  async redis(ports) {
    const rootNodes = ports.map((port) => ({ url: `redis://127.0.0.1:${port}` }));
    const client = createCluster({ rootNodes });
    await client.connect();
    return {
      client,
      end: () => {
        client.destroy();
      },
    };
  },
  async iovalkey(ports) {
    const client = new ValkeyCluster(ports.map((port) => ({ host: "127.0.0.1", port })));
    return {
      client,
      end: () => {
        client.disconnect();
      },
    };
  },
  async GLIDE(ports) {
    const addresses = ports.map((port) => ({ host: "127.0.0.1", port }));
    const client = await GlideClusterClient.createClient({ addresses });
    return {
      client,
      end: () => {
        client.close();
      },
    };
  },
};

/** Called, last first, after each test. */
const endings: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of endings.splice(0).toReversed()) await end();
});

export function atEnd(end: () => unknown): void {
  endings.push(end);
}

/** A server for one test. */
export async function serve(
  options: readonly string[] = DURABLE,
  program: RedisProgram | undefined = newest,
): Promise<TestRedis> {
  if (program === undefined) throw new Error("there is no server");
  const server = await startRedis(program, options);
  atEnd(() => server.stop());
  return server;
}

/** A client for one test. */
export async function connect(server: Pick<TestRedis, "url">): Promise<Redis> {
  const { client, end } = await (CLIENTS["ioredis"] ?? unknownClient)(server.url);
  atEnd(end);
  return client as Redis; // It is the one of ioredis.
}

function unknownClient(): never {
  throw new Error("there is no such client");
}
