/** A server with TLS for tests: its files, an authority that clients trust, and a call over HTTPS. */

import { chmodSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { Agent, request } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ConnectionOptions, TLSSocket } from "node:tls";
import {
  type NodeServer,
  type NodeServerOptions,
  startNodeServer,
} from "../../src/streams/runtimes/node.ts";
import { type Authority, type Certificate, createAuthority } from "./certificates.ts";

export interface TlsStage {
  readonly authority: Authority;
  readonly certFile: string;
  readonly keyFile: string;
  /** Puts a certificate into the files, each at once, as careful tools do. */
  put(certificate: Certificate): void;
  /** Writes another file into the directory, and returns its path. */
  write(name: string, text: string, mode?: number): string;
  start(options?: Partial<NodeServerOptions>): Promise<NodeServer>;
  /** Stops all servers, and removes the files. */
  close(): Promise<void>;
}

/** The name and the address under which tests call. */
const LOCAL = { name: "localhost", addresses: ["127.0.0.1"] };

export function issueLocal(authority: Authority): Certificate {
  return authority.issue(LOCAL);
}

export function openTlsStage(): TlsStage {
  const directory = mkdtempSync(join(tmpdir(), "hapax-tls-"));
  const authority = createAuthority();
  const certFile = join(directory, "cert.pem");
  const keyFile = join(directory, "key.pem");
  const servers: NodeServer[] = [];
  const write = (name: string, text: string, mode = 0o600): string => {
    const path = join(directory, name);
    writeFileSync(`${path}.new`, text);
    chmodSync(`${path}.new`, mode);
    renameSync(`${path}.new`, path);
    return path;
  };
  const put = ({ cert, key }: Certificate): void => {
    write("key.pem", key);
    write("cert.pem", cert, 0o644);
  };
  put(issueLocal(authority));
  return {
    authority,
    certFile,
    keyFile,
    put,
    write,
    async start(options = {}) {
      const tls = { certFile, keyFile };
      const server = await startNodeServer({ store: "memory", port: 0, tls, ...options });
      servers.push(server);
      return server;
    },
    async close() {
      for (const server of servers) await server.stop();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

export interface TlsAnswer {
  readonly status: number;
  readonly headers: Record<string, unknown>;
  readonly text: string;
  /** The serial number of the server's certificate. */
  readonly serial: string;
}

export interface TlsCall extends ConnectionOptions {
  readonly headers?: Record<string, string>;
  readonly body?: string;
  readonly agent?: Agent;
}

/** One request over HTTPS with HTTP/1.1, on a connection of its own unless an agent is given. */
export function callTls(
  method: string,
  url: string,
  { headers = {}, body, agent, ...tls }: TlsCall,
): Promise<TlsAnswer> {
  return new Promise((resolve, reject) => {
    const sent = request(url, { method, headers, agent: agent ?? false, ...tls });
    sent.on("error", reject);
    sent.on("response", (response) => {
      const pieces: Buffer[] = [];
      const { serialNumber: serial } = (response.socket as TLSSocket).getPeerCertificate();
      response.on("data", (piece: Buffer) => pieces.push(piece));
      response.on("error", reject);
      response.on("end", () => {
        const text = Buffer.concat(pieces).toString();
        resolve({ status: response.statusCode ?? 0, headers: response.headers, text, serial });
      });
    });
    sent.end(body);
  });
}
