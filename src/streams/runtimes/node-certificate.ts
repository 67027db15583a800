/** The certificate of a client that TLS has checked, as a function of authorization sees it. */

import { TLSSocket } from "node:tls";
import type { ClientCertificate } from "../access/identity.ts";

const known = new WeakMap<TLSSocket, ClientCertificate>();

/** Undefined: the connection has no TLS, or the client has sent no certificate of a configured authority. */
export function certificateOf(socket: unknown): ClientCertificate | undefined {
  if (!(socket instanceof TLSSocket) || !socket.authorized) return undefined;
  const found = known.get(socket);
  if (found !== undefined) return found;
  const { subject, subjectaltname, fingerprint256 } = socket.getPeerCertificate();
  // A session that was resumed may have none: then the client is as one without.
  if (fingerprint256 === undefined) return undefined;
  const certificate: ClientCertificate = {
    commonName: nameOf(subject?.CN),
    names: subjectaltname === undefined ? [] : subjectaltname.split(", "),
    fingerprint: fingerprint256.replaceAll(":", "").toLowerCase(),
  };
  known.set(socket, certificate);
  return certificate;
}

/** A subject with two names is none that one could rely on. */
function nameOf(name: unknown): string | undefined {
  return typeof name === "string" ? name : undefined;
}
