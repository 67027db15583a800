/** Faults of what is written: a secret in a log, and a name that is not checked. */
const SECRETS = "test/protocol/secrets.test.ts";
const NO_SECRET =
  "G52 secrets in headers, queries and bodies are in no log, audit, span, metric, error or file name";
export const logFaults = [
  {
    name: "signing: the journal has the private key",
    guarantee: "G52",
    file: "src/streams/engine/subscriptions/signing.ts",
    find: "const key = JSON.stringify(salt);",
    replace: "const key = JSON.stringify({ ...salt, ...(await deriveSigningKey(secret, salt)) });",
    caughtBy: {
      file: "test/access/webhook-keys.test.ts",
      test: "G52 no private key that signs webhooks is in the journal or in a snapshot",
    },
  },
  {
    name: "logs: the query is written whole",
    guarantee: "G52",
    file: "src/streams/server/redaction.ts",
    find: 'return HARMLESS.has(name) ? member : "***";',
    replace: "return HARMLESS.has(name) ? member : query;",
    caughtBy: { file: SECRETS, test: NO_SECRET },
  },
  {
    name: "logs: the credential is written",
    guarantee: "G52",
    file: "src/streams/server/watch.ts",
    find: "const path = shorten(exchange.path);",
    replace: 'const path = shorten(exchange.path + (exchange.header("authorization") ?? ""));',
    caughtBy: { file: SECRETS, test: NO_SECRET },
  },
  {
    name: "logs: a request id is taken unchecked",
    guarantee: "G52",
    file: "src/streams/server/request-ids.ts",
    find: "return sent !== undefined && REQUEST_ID.test(sent) ? sent : this.next();",
    replace: "return sent !== undefined && REQUEST_ID !== undefined ? sent : this.next();",
    caughtBy: { file: SECRETS, test: NO_SECRET },
  },
  {
    name: "logs: strangers and identities share the refusals of the audit",
    guarantee: "G52",
    file: "src/streams/server/audit.ts",
    find: 'let key = identity === undefined ? STRANGERS : joinScoped(namespace ?? "", identity);',
    replace: 'let key = identity === "" ? joinScoped(namespace, identity) : STRANGERS;',
    caughtBy: {
      file: "src/streams/server/audit.test.ts",
      test: "G52 neither strangers nor another identity can hide the refusals of an identity",
    },
  },
];
