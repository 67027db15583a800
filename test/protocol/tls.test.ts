// PROTOCOL.md §13.7: HTTPS with files that are checked at the start and read again when they change.
import { createHash, generateKeyPairSync, X509Certificate } from "node:crypto";
import { once } from "node:events";
import { chmodSync } from "node:fs";
import { Agent } from "node:https";
import { connect as connectPlain } from "node:net";
import { connect } from "node:tls";
import { afterAll, afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { LIMITS } from "../../src/protocol/all-limits.ts";
import type { NodeServer } from "../../src/streams/runtimes/node.ts";
import type { Authorize, ClientCertificate } from "../../src/streams/server.ts";
import { createAuthority } from "../kits/certificates.ts";
import { openHttp2 } from "../kits/http2-fetch.ts";
import { callTls, issueLocal, openTlsStage, type TlsStage } from "../kits/tls-server.ts";

const TEXT = { "content-type": "text/plain" };
let stage: TlsStage;

beforeEach(() => {
  stage = openTlsStage();
});

afterEach(async () => {
  await stage.close();
});

afterAll(() => {
  vi.restoreAllMocks();
});

const portOf = (server: NodeServer): number => Number(new URL(server.url).port);

/** What a start with these files is refused with. */
async function refusal(files: Record<string, string>): Promise<string> {
  const { certFile, keyFile } = stage;
  const start = stage.start({ tls: { certFile, keyFile, ...files } });
  const error = await start.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toMatchObject({ code: "invalid_options" });
  return (error as Error).message;
}

describe("a server with a certificate", () => {
  test("speaks HTTPS, says so in its URL, and answers as any other", async () => {
    const server = await stage.start();
    const ca = stage.authority.cert;
    expect(server.url).toBe(`https://127.0.0.1:${portOf(server)}`);
    const path = `${server.url}/v1/stream/orders`;
    const made = await callTls("PUT", path, { ca, headers: TEXT, body: "a" });
    expect([made.status, made.headers["location"]]).toEqual([201, path]);
    expect((await callTls("POST", path, { ca, headers: TEXT, body: "b" })).status).toBe(204);
    expect((await callTls("GET", `${path}?offset=-1`, { ca })).text).toBe("ab");
  });

  test("keeps connections for many requests, and checks Origin and Host as in clear text", async () => {
    const server = await stage.start();
    const trust = { ca: stage.authority.cert, servername: "localhost" };
    const agent = new Agent({ keepAlive: true, maxSockets: 1, ...trust });
    const path = `${server.url}/v1/stream/orders`;
    const put = await callTls("PUT", path, { agent, headers: TEXT });
    const foreign = { ...TEXT, origin: "https://evil.example" };
    const page = await callTls("POST", path, { agent, headers: foreign, body: "x" });
    const named = { ...TEXT, host: "evil.example" };
    const rebound = await callTls("POST", path, { agent, headers: named, body: "x" });
    const read = await callTls("GET", `${path}?offset=-1`, { agent });
    expect([put.status, page.status, rebound.status, read.text]).toEqual([201, 403, 421, ""]);
    agent.destroy();
  });

  test("refuses TLS 1.1, and takes 1.2 and 1.3", async () => {
    const server = await stage.start();
    const ca = stage.authority.cert;
    const version = async (maxVersion: "TLSv1.1" | "TLSv1.2" | "TLSv1.3") => {
      const options = { ca, port: portOf(server), host: "127.0.0.1", maxVersion } as const;
      const minVersion = maxVersion === "TLSv1.1" ? "TLSv1" : "TLSv1.2";
      const ciphers = "DEFAULT@SECLEVEL=0"; // Otherwise this side would refuse.
      const socket = connect({ ...options, minVersion, ciphers });
      try {
        await once(socket, "secureConnect");
        return socket.getProtocol();
      } catch (error) {
        return (error as NodeJS.ErrnoException).code;
      } finally {
        socket.destroy();
      }
    };
    expect(await version("TLSv1.3")).toBe("TLSv1.3");
    expect(await version("TLSv1.2")).toBe("TLSv1.2");
    expect(await version("TLSv1.1")).toBe("ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION");
  });

  test("a client that has sent its last byte still gets its answer", async () => {
    const server = await stage.start();
    // Node's types do not have `allowHalfOpen` here.
    const halfOpen = { allowHalfOpen: true };
    const where = { port: portOf(server), host: "127.0.0.1" };
    const socket = connect({ ca: stage.authority.cert, ...where, ...halfOpen });
    await once(socket, "secureConnect");
    const pieces: Buffer[] = [];
    socket.on("data", (piece: Buffer) => pieces.push(piece));
    socket.end("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await once(socket, "close");
    expect(Buffer.concat(pieces).toString()).toMatch(/^HTTP\/1.1 200 /);
  });

  test("clear text on its port is closed, and stop does not wait for a silent socket", async () => {
    const server = await stage.start();
    const plain = connectPlain(portOf(server), "127.0.0.1");
    plain.on("error", () => undefined);
    plain.write("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    plain.resume();
    await once(plain, "close");
    const silent = connectPlain(portOf(server), "127.0.0.1");
    silent.on("error", () => undefined);
    await once(silent, "connect");
    const began = performance.now();
    await server.stop();
    expect(performance.now() - began).toBeLessThan(LIMITS.drainMs / 2);
  });
});

describe("files are checked at the start", () => {
  test("every problem is named with its file: missing, empty, no PEM", async () => {
    const empty = stage.write("empty.pem", "");
    const noise = stage.write("noise.pem", "hello");
    const gone = await refusal({ certFile: "/nowhere/cert.pem", keyFile: "/nowhere/key.pem" });
    expect(gone).toMatch(/tls\.certFile=\/nowhere\/cert\.pem cannot be read .*ENOENT/);
    expect(gone).toMatch(/tls\.keyFile=\/nowhere\/key\.pem cannot be read .*ENOENT/);
    expect(await refusal({ certFile: empty })).toContain(`${empty} has no valid certificate`);
    expect(await refusal({ certFile: noise })).toContain(`${noise} has no valid certificate`);
    expect(await refusal({ keyFile: noise })).toContain(`${noise} cannot be used`);
    // Without authorities in it, Node would take those of the public web instead.
    expect(await refusal({ clientCaFile: empty })).toContain(`${empty} has no valid certificate`);
  });

  test("the key must be that of the certificate, and without a passphrase", async () => {
    const other = stage.write("other.pem", issueLocal(stage.authority).key);
    expect(await refusal({ keyFile: other })).toContain("is not the key of the first certificate");
    const { privateKey } = generateKeyPairSync("ec", { namedCurve: "prime256v1" });
    const options = { type: "pkcs8", format: "pem", cipher: "aes-256-cbc", passphrase: "x" };
    const text = privateKey.export(options as { type: "pkcs8"; format: "pem" }).toString();
    const locked = stage.write("locked.pem", text);
    expect(await refusal({ keyFile: locked })).toContain("it has a passphrase");
  });

  test.each([0o644, 0o604, 0o660, 0o602])("a key of mode %o is refused", async (mode) => {
    chmodSync(stage.keyFile, mode);
    const message = await refusal({});
    expect(message).toContain(`mode 0${mode.toString(8)}`);
    expect(message).toContain(`chmod 600 ${stage.keyFile}`);
  });

  test("a group may read a key of root, and of no other user", async () => {
    chmodSync(stage.keyFile, 0o640);
    if (process.getuid?.() === 0) await stage.start();
    else expect(await refusal({})).toContain("mode 0640");
  });

  test("a refused start leaves nothing open: the store can be used again", async () => {
    const close = vi.fn(async () => undefined);
    const { openMemoryStore } = await import("../../src/streams/stores/memory.ts");
    const store = Object.assign(openMemoryStore(), { close });
    chmodSync(stage.keyFile, 0o644);
    await expect(stage.start({ store })).rejects.toMatchObject({ code: "invalid_options" });
    expect(close).toHaveBeenCalledTimes(1);
  });

  test("an expired certificate is said loudly, and does not keep the server from starting", async () => {
    const onNote = vi.fn();
    stage.put(stage.authority.issue({ name: "localhost", notAfter: "20210101000000Z" }));
    await stage.start({ onNote });
    expect(onNote.mock.calls.flat().join()).toMatch(/expired on Jan {2}1 .*2021/);
  });
});

describe("files that change", () => {
  const serialAt = async (server: NodeServer, agent?: Agent): Promise<string> => {
    const options = { ca: stage.authority.cert, ...(agent === undefined ? {} : { agent }) };
    return (await callTls("GET", `${server.url}/healthz`, options)).serial;
  };

  test("new connections get the new certificate, and old connections go on", async () => {
    const onNote = vi.fn();
    const server = await stage.start({ onNote });
    const agent = new Agent({ keepAlive: true, maxSockets: 1, ca: stage.authority.cert });
    const before = await serialAt(server, agent);
    stage.put(issueLocal(stage.authority));
    await vi.waitFor(() => expect(onNote).toHaveBeenCalledTimes(1), 10_000);
    expect(onNote.mock.calls[0]?.[0]).toContain("new connections use the new certificate");
    expect(await serialAt(server, agent)).toBe(before);
    expect(await serialAt(server)).not.toBe(before);
    agent.destroy();
  });

  test("a broken or half-written file is reported once, and the old certificate stays in use", async () => {
    const [onNote, onFault] = [vi.fn(), vi.fn()];
    const server = await stage.start({ onNote, onFault });
    const before = await serialAt(server);
    const next = issueLocal(stage.authority);
    stage.write("cert.pem", next.cert.slice(0, 200));
    await vi.waitFor(() => expect(onFault).toHaveBeenCalledTimes(1), 10_000);
    expect(String(onFault.mock.calls[0]?.[0])).toContain("the old certificate stays in use");
    // Further looks at the same files report nothing.
    await new Promise((resolve) => setTimeout(resolve, 3 * LIMITS.tlsCheckMs));
    expect(onFault).toHaveBeenCalledTimes(1);
    expect(await serialAt(server)).toBe(before);
    // The certificate is whole, and its key has yet to come.
    stage.write("cert.pem", next.cert);
    await vi.waitFor(() => expect(onFault).toHaveBeenCalledTimes(2), 10_000);
    expect(String(onFault.mock.calls[1]?.[0])).toContain("is not the key");
    expect(await serialAt(server)).toBe(before);
    stage.write("key.pem", next.key);
    await vi.waitFor(() => expect(onNote).toHaveBeenCalledTimes(1), 10_000);
    expect(await serialAt(server)).not.toBe(before);
    expect(onFault).toHaveBeenCalledTimes(2);
  });

  test("a key that becomes readable for others is not taken", async () => {
    const onFault = vi.fn();
    const server = await stage.start({ onFault });
    const before = await serialAt(server);
    const next = issueLocal(stage.authority);
    stage.write("key.pem", next.key, 0o644);
    stage.write("cert.pem", next.cert);
    await vi.waitFor(() => expect(onFault).toHaveBeenCalled(), 10_000);
    expect(String(onFault.mock.calls.at(-1)?.[0])).toContain("chmod 600");
    expect(await serialAt(server)).toBe(before);
  });
});

describe("with a client CA", () => {
  test("only a connection with a certificate of that authority gets an answer", async () => {
    const clients = createAuthority("clients");
    const clientCaFile = stage.write("clients.pem", clients.cert);
    const { certFile, keyFile } = stage;
    const server = await stage.start({ tls: { certFile, keyFile, clientCaFile } });
    const path = `${server.url}/v1/stream/orders`;
    const ca = stage.authority.cert;
    const good = clients.issue({ name: "worker" });
    const put = await callTls("PUT", path, { ca, ...good, headers: TEXT });
    expect(put.status).toBe(201);
    const stranger = createAuthority("clients").issue({ name: "worker" });
    const ofServer = stage.authority.issue({ name: "worker" });
    const old = clients.issue({ name: "worker", notAfter: "20210101000000Z" });
    for (const identity of [{}, stranger, ofServer, old]) {
      const call = callTls("POST", path, { ca, ...identity, headers: TEXT, body: "x" });
      await expect(call).rejects.toThrow();
      const older = { ca, ...identity, maxVersion: "TLSv1.2" as const };
      await expect(callTls("POST", path, { ...older, headers: TEXT, body: "x" })).rejects.toThrow();
    }
    expect((await callTls("GET", `${path}?offset=-1`, { ca, ...good })).text).toBe("");
  });

  test("G40 the certificate says who calls, on HTTP/1.1 and HTTP/2", async () => {
    const clients = createAuthority("clients");
    const clientCaFile = stage.write("clients.pem", clients.cert);
    const { certFile, keyFile } = stage;
    const seen: (ClientCertificate | undefined)[] = [];
    const authorize: Authorize = ({ certificate }) => {
      seen.push(certificate);
      if (certificate?.commonName !== "worker") return { refused: "invalid" };
      return { name: "worker", grants: [{ actions: ["create"] }] };
    };
    const tls = { certFile, keyFile, clientCaFile };
    const server = await stage.start({ authorize, tls });
    const ca = stage.authority.cert;
    for (const [name, statuses] of [
      ["worker", [201, 403]],
      ["stranger", [401, 401]],
    ] as const) {
      const own = clients.issue({ name });
      const path = `/v1/stream/of-${name}`;
      const options = { ca, ...own, headers: TEXT };
      expect((await callTls("PUT", server.url + path, options)).status).toBe(statuses[0]);
      expect((await callTls("GET", server.url + path, options)).status).toBe(statuses[1]);
      const http2 = openHttp2(server.url, ca, 1, own);
      const put = await http2.fetch(`${server.url}${path}-2`, { method: "PUT", headers: TEXT });
      expect(put.status).toBe(statuses[0]);
      expect((await http2.fetch(server.url + path)).status).toBe(statuses[1]);
      http2.close();
      const fingerprint = createHash("sha256")
        .update(new X509Certificate(own.cert).raw)
        .digest("hex");
      expect(seen.splice(0)).toEqual(
        Array.from({ length: 4 }, () => ({
          commonName: name,
          names: [`DNS:${name}`],
          fingerprint,
        })),
      );
    }
  });

  test("authorities can be replaced while the server runs", async () => {
    const [before, after] = [createAuthority("before"), createAuthority("after")];
    const clientCaFile = stage.write("clients.pem", before.cert);
    const onNote = vi.fn();
    const { certFile, keyFile } = stage;
    const server = await stage.start({ onNote, tls: { certFile, keyFile, clientCaFile } });
    const ca = stage.authority.cert;
    const [old, fresh] = [before.issue({ name: "a" }), after.issue({ name: "a" })];
    const call = (identity: object) => callTls("GET", `${server.url}/healthz`, { ca, ...identity });
    expect((await call(old)).status).toBe(200);
    await expect(call(fresh)).rejects.toThrow();
    stage.write("clients.pem", after.cert);
    await vi.waitFor(() => expect(onNote).toHaveBeenCalledTimes(1), 10_000);
    expect((await call(fresh)).status).toBe(200);
    await expect(call(old)).rejects.toThrow();
  });
});
