/** The real nginx and Caddy of Debian, with the files of deploy/proxies: only names, ports and certificates are replaced. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type NodeServerOptions, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { hasProgram } from "../kits/debian-programs.ts";
import { read } from "../kits/documents.ts";
import { freePort } from "../kits/fetch-hosts.ts";
import { openTlsStage } from "../kits/tls-server.ts";

export interface ProxyPlace {
  readonly folder: string;
  /** Where the proxy listens. */
  readonly port: number;
  /** Where the server listens. */
  readonly upstream: number;
  readonly certFile: string;
  readonly keyFile: string;
}

export interface Proxy {
  readonly name: string;
  isHere(): boolean;
  /** Writes the configuration, and returns the command that runs the proxy in the foreground. */
  prepare(place: ProxyPlace): readonly string[];
}

/** A text of the repository with replacements, each of which must be needed. */
export function replaced(path: string, changes: readonly (readonly [string, string])[]): string {
  let text = read(path);
  for (const [from, to] of changes) {
    if (!text.includes(from)) throw new Error(`${path} does not say ${from}`);
    text = text.replaceAll(from, to);
  }
  return text;
}

const nginx: Proxy = {
  name: "nginx",
  isHere: () => hasProgram("nginx", "nginx-light", "-v"),
  prepare({ folder, port, upstream, certFile, keyFile }) {
    const site = replaced("deploy/proxies/nginx.conf", [
      ["127.0.0.1:4437", `127.0.0.1:${upstream}`],
      ["listen 443 ssl", `listen 127.0.0.1:${port} ssl`],
      ["/etc/hapax/cert.pem", certFile],
      ["/etc/hapax/key.pem", keyFile],
    ]);
    writeFileSync(join(folder, "site.conf"), site);
    const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
      (kind) => `${kind}_temp_path ${join(folder, kind)};`,
    );
    const main = [
      // As root its workers would be another user, who cannot read this folder.
      process.getuid?.() === 0 ? "user root;" : "",
      "worker_processes 1;",
      `pid ${join(folder, "pid")};`,
      "events {}",
      // On, as in many installations: the site must say what it needs.
      `http { access_log off; gzip on; gzip_types *; ${temporary.join(" ")} include site.conf; }`,
    ];
    writeFileSync(join(folder, "nginx.conf"), main.join("\n"));
    return ["nginx", "-p", folder, "-c", "nginx.conf", "-e", "stderr", "-g", "daemon off;"];
  },
};

const caddy: Proxy = {
  name: "Caddy",
  isHere: () => hasProgram("caddy", "caddy", "version"),
  prepare({ folder, certFile, keyFile }) {
    const site = replaced("deploy/proxies/Caddyfile", [
      // Here Caddy cannot get a certificate by itself.
      [":streams.example} {", `:streams.example} {\n\ttls ${certFile} ${keyFile}`],
    ]);
    const options = "{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n";
    writeFileSync(join(folder, "Caddyfile"), options + site);
    return ["caddy", "run", "--adapter", "caddyfile", "--config", join(folder, "Caddyfile")];
  },
};

export const PROXIES: readonly Proxy[] = [nginx, caddy];

export interface Proxied {
  /** The way through the proxy, and the way around it. */
  readonly url: string;
  readonly direct: string;
  stop(): Promise<void>;
}

/** Starts a server and a proxy in front of it. */
export async function startBehind(
  proxy: Proxy,
  options: Partial<NodeServerOptions> = {},
): Promise<Proxied> {
  const folder = mkdtempSync(join(tmpdir(), "hapax-proxy-"));
  const stage = openTlsStage();
  const port = await freePort();
  const url = `https://127.0.0.1:${port}`;
  const upstream = await freePort();
  const server = await startNodeServer({
    store: "memory",
    port: upstream,
    publicUrl: url,
    ...options,
  });
  const { certFile, keyFile } = stage;
  const place = { folder, port, upstream, certFile, keyFile };
  const [program = "", ...args] = proxy.prepare(place);
  const settings = { HAPAX_DOMAIN: url, HAPAX_UPSTREAM: `127.0.0.1:${upstream}` };
  const env = {
    ...process.env,
    ...settings,
    XDG_DATA_HOME: folder,
    XDG_CONFIG_HOME: folder,
    HOME: folder,
  };
  const child = spawn(program, args, { cwd: folder, env, stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (said += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (said += text));
  await listening(port, child, () => said);
  return {
    url,
    direct: `http://127.0.0.1:${upstream}`,
    async stop() {
      child.kill("SIGTERM");
      const stopped = setTimeout(() => child.kill("SIGKILL"), 2_000);
      if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
      clearTimeout(stopped);
      await server.stop();
      await stage.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function listening(port: number, child: ChildProcess, said: () => string): Promise<void> {
  while (child.exitCode === null && child.signalCode === null) {
    const isOpen = await new Promise<boolean>((resolve) => {
      const socket = connect(port, "127.0.0.1");
      socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
      socket.once("connect", () => socket.destroy());
    });
    if (isOpen) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`the proxy has ended: ${said()}`);
}
