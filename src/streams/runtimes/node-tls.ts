/**
 * The certificate of a server on Node: read from files, checked before it is used, and read again when the files change.
 *
 *   - what cannot be used is refused at the start, with the file and what to do;
 *   - a private key that other users of the machine can read is refused. As with PostgreSQL, a group may read a key that
 *     belongs to root;
 *   - files that change are used for new connections when all of them fit together. Until then the old ones stay in use, and
 *     every problem is reported once.
 *
 * PROTOCOL.md §13.7.
 */

import { createPrivateKey, type KeyObject, X509Certificate } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { createSecureContext, type SecureContextOptions } from "node:tls";
import { HapaxError } from "../../base/errors.ts";
import { OptionsCheck } from "../../base/options-check.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import { fileState, FileWatch, type WatchedFiles } from "./node-file-watch.ts";
import { ownerProblem, readTrustedFile } from "./node-secret-file.ts";

/** Paths of the files for TLS, all in PEM. The server reads them again when they change. */
export interface TlsFiles {
  /** The certificate of the server, followed by those of its intermediate authorities. */
  readonly certFile: string;
  /** The private key of the certificate, without a passphrase. Only its owner may read it: `chmod 600`. */
  readonly keyFile: string;
  /**
   * Certificates of authorities. The server refuses every connection without a client certificate of one of them. Default: no
   * client certificate is asked for.
   */
  readonly clientCaFile?: string;
}

/** What a listener needs, and how long it is valid. */
interface Loaded {
  readonly context: SecureContextOptions;
  readonly notes: readonly string[];
}

export interface TlsListeners {
  /** Takes a certificate into use, for new connections. */
  readonly use: (context: SecureContextOptions) => void;
  readonly onNote: (line: string) => void;
  readonly onFault: (error: unknown) => void;
}

/** Several hundred authorities. */
const AUTHORITIES_BYTES_MAX = 4 * 1024 * 1024;
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/** Reads and checks the files. Throws `invalid_options` with all problems. */
export async function loadTls(files: TlsFiles): Promise<Loaded> {
  const check = new OptionsCheck(HapaxError);
  const cert = await readPem("certFile", files.certFile, check);
  const key = await readPem("keyFile", files.keyFile, check);
  const clientCa = await readAuthorities(files.clientCaFile, check);
  await checkKeyMode(files.keyFile, check);
  const chain = parseCertificates("certFile", files.certFile, cert, check);
  if (files.clientCaFile !== undefined) {
    parseCertificates("clientCaFile", files.clientCaFile, clientCa, check);
  }
  const privateKey = parseKey(files.keyFile, key, check);
  const [first] = chain;
  if (first !== undefined && privateKey !== undefined && !first.checkPrivateKey(privateKey)) {
    check.problem(
      `tls.keyFile=${files.keyFile} is not the key of the first certificate in ${files.certFile}: give the two files that belong together, ` +
        "with the server's own certificate first",
    );
  }
  check.end();
  const context: SecureContextOptions = {
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
    ...(clientCa === undefined ? {} : { ca: clientCa }),
    minVersion: "TLSv1.2",
  };
  try {
    createSecureContext(context);
  } catch (error) {
    check.problem(`tls: OpenSSL refuses the certificate or its key: ${textOf(error)}`);
  }
  check.end();
  return { context, notes: first === undefined ? [] : validityNotes(files.certFile, first) };
}

/** Undefined, and a problem, if it cannot be read. */
async function readPem(
  name: string,
  path: string,
  check: OptionsCheck,
): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    check.problem(
      `tls.${name}=${path} cannot be read (${textOf(error)}): give the path of a PEM file that the user of this process may read`,
    );
    return undefined;
  }
}

/** A user who can change them can sign certificates that the server takes. */
async function readAuthorities(
  path: string | undefined,
  check: OptionsCheck,
): Promise<string | undefined> {
  if (path === undefined) return undefined;
  try {
    return await readTrustedFile(path, AUTHORITIES_BYTES_MAX);
  } catch (error) {
    check.problem(`tls.clientCaFile=${path}: ${textOf(error)}`);
    return undefined;
  }
}

/** Others must not be able to read the key. Windows has no such modes. */
async function checkKeyMode(path: string, check: OptionsCheck): Promise<void> {
  if (process.platform === "win32") return;
  const found = await stat(path).catch(() => undefined);
  if (found === undefined) return; // The problem is reported already.
  const owner = await ownerProblem(path, found.uid);
  if (owner !== undefined) check.problem(`tls.keyFile=${path} cannot be used: ${owner}`);
  const allowed = found.uid === 0 ? 0o740 : 0o700;
  if ((found.mode & 0o777 & ~allowed) === 0) return;
  const mode = (found.mode & 0o777).toString(8).padStart(4, "0");
  check.problem(
    `tls.keyFile=${path} has mode ${mode}, so other users may read or change the private key: run chmod 600 ${path}`,
  );
}

function parseCertificates(
  name: string,
  path: string,
  pem: string | undefined,
  check: OptionsCheck,
): X509Certificate[] {
  if (pem === undefined) return [];
  const blocks = pem.match(CERTIFICATE) ?? [];
  try {
    if (blocks.length === 0) throw new Error("there is no BEGIN CERTIFICATE in it");
    return blocks.map((block) => new X509Certificate(block));
  } catch (error) {
    check.problem(`tls.${name}=${path} has no valid certificate in PEM: ${textOf(error)}`);
    return [];
  }
}

function parseKey(
  path: string,
  pem: string | undefined,
  check: OptionsCheck,
): KeyObject | undefined {
  if (pem === undefined) return undefined;
  try {
    return createPrivateKey(pem);
  } catch (error) {
    const isLocked = pem.includes("ENCRYPTED");
    const advice = isLocked
      ? "it has a passphrase: store it without one, readable for its owner only"
      : `it has no private key in PEM: ${textOf(error)}`;
    check.problem(`tls.keyFile=${path} cannot be used: ${advice}`);
    return undefined;
  }
}

function validityNotes(path: string, certificate: X509Certificate): readonly string[] {
  const nowMs = Date.now();
  const { validFrom, validTo } = certificate;
  if (Date.parse(validTo) < nowMs) {
    return [
      `the certificate in ${path} expired on ${validTo}: clients refuse it until you renew it`,
    ];
  }
  if (Date.parse(validFrom) > nowMs) {
    return [`the certificate in ${path} is not valid before ${validFrom}: look at the clock`];
  }
  return [];
}

function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Looks at the files once in a while, and takes new ones into use. `state`: that of the files before they were loaded. */
export function watchTls(files: TlsFiles, state: string, listeners: TlsListeners): FileWatch {
  const { use, onNote, onFault } = listeners;
  const watched: WatchedFiles = {
    paths: pathsOf(files),
    everyMs: LIMITS.tlsCheckMs,
    isPatient: true,
    async load() {
      const { context, notes } = await loadTls(files);
      use(context);
      onNote(`tls: new connections use the new certificate in ${files.certFile}`);
      for (const note of notes) onNote(`tls: ${note}`);
    },
    onBroken(error) {
      const detail = `the TLS files changed and cannot be used, so the old certificate stays in use: ${textOf(error)}`;
      onFault(new HapaxError("invalid_options", detail, { cause: error }));
    },
  };
  return new FileWatch(watched, state);
}

/** A text that changes when one of the files does. */
export function stateOf(files: TlsFiles): Promise<string> {
  return fileState(pathsOf(files));
}

function pathsOf({ certFile, keyFile, clientCaFile }: TlsFiles): readonly string[] {
  return [certFile, keyFile, ...(clientCaFile === undefined ? [] : [clientCaFile])];
}
