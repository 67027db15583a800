/**
 * A small store that speaks S3, and can do what stores should not: lose requests and answers, ignore conditions, list late, refuse
 * for a moment. Real servers are in s3-servers.ts; this one is for what they do not do on command.
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** What happens to a request. */
export type Fate = "served" | "request lost" | "answer lost" | "busy" | "conflict";

export class FakeS3 {
  readonly objects = new Map<string, Buffer>();
  readonly calls: string[] = [];
  bytes = 0;
  isIgnoringConditions = false;
  /** So many names that were created last are in no list. */
  hiddenMax = 0;
  fate: (method: string, name: string) => Fate = () => "served";
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((request, response) => {
      this.#serve(request, response).catch(() => response.destroy());
    });
  }

  static async start(): Promise<FakeS3> {
    const fake = new FakeS3();
    await new Promise<void>((resolve) => fake.#server.listen(0, "127.0.0.1", resolve));
    return fake;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/bucket`;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? "", "http://fake");
    const name = decodeURIComponent(url.pathname.slice("/bucket/".length));
    const method = request.method ?? "";
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const body = Buffer.concat(parts);
    this.calls.push(`${method} ${name}`);
    this.bytes += body.length;
    const fate = this.fate(method, name);
    if (fate === "request lost") return void response.destroy();
    if (fate === "busy") return void response.writeHead(503).end("<Code>SlowDown</Code>");
    if (fate === "conflict")
      return void response.writeHead(409).end("<Code>ConditionalRequestConflict</Code>");
    const [status, answer] = this.#answer(method, name, url, body, request);
    if (fate === "answer lost") return void response.destroy();
    response.writeHead(status).end(answer);
  }

  #answer(
    method: string,
    name: string,
    url: URL,
    body: Buffer,
    { headers }: IncomingMessage,
  ): [status: number, answer?: string | Buffer] {
    if (method === "PUT") {
      const isConditional = headers["if-none-match"] === "*" && !this.isIgnoringConditions;
      if (isConditional && this.objects.has(name)) return [412];
      this.objects.delete(name);
      this.objects.set(name, body);
      return [200];
    }
    if (method === "DELETE") {
      this.objects.delete(name);
      return [204];
    }
    if (name !== "") {
      const found = this.objects.get(name);
      return found === undefined ? [404] : [200, found];
    }
    return [200, this.#list(url.searchParams)];
  }

  /** Pages of two: a client that reads only the first would be found out. */
  #list(query: URLSearchParams): string {
    const prefix = query.get("prefix") ?? "";
    const all = [...this.objects.keys()];
    const seen = all.slice(0, Math.max(0, all.length - this.hiddenMax));
    const names = seen.filter((name) => name.startsWith(prefix)).toSorted();
    const from = Number(query.get("continuation-token") ?? 0);
    const more = from + 2 < names.length;
    const keys = names
      .slice(from, from + 2)
      .map((name) => `<Contents><Key>${name}</Key></Contents>`);
    const next = more ? `<NextContinuationToken>${from + 2}</NextContinuationToken>` : "";
    return `<ListBucketResult><IsTruncated>${more}</IsTruncated>${next}${keys.join("")}</ListBucketResult>`;
  }
}
