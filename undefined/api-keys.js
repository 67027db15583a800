/** Faults of API keys: what would let clients in that must stay out, or show keys to other users. */
const KEYS = "src/streams/access/api-keys.ts";
const KEYS_TEST = "src/streams/access/api-keys.test.ts";
const FILE = "src/streams/runtimes/node-key-file.ts";
const FILE_TEST = "src/streams/runtimes/node-key-file.test.ts";
export const apiKeyFaults = [
  {
    name: "api keys: the comparison of digests stops at the first difference",
    guarantee: "G49",
    file: "src/streams/access/api-key.ts",
    find: "for (let at = 0; at < one.length; at += 1) difference |=",
    replace: "for (let at = 0; at < one.length && difference === 0; at += 1) difference |=",
    caughtBy: {
      file: "src/streams/access/api-key.test.ts",
      test: "the comparison of digests > every byte of both is looked at, wherever they differ",
    },
  },
  {
    name: "api keys: the checksum is not compared",
    guarantee: "G49",
    file: "src/streams/access/api-key.ts",
    find: "if (checksumOf(text.slice(0, CHECKSUM_AT)) !== text.slice(CHECKSUM_AT)) return undefined;",
    replace: "if (checksumOf(text.slice(0, CHECKSUM_AT)) === text) return undefined;",
    caughtBy: {
      file: KEYS_TEST,
      test: "requests with an API key > a key with one changed character is refused before anything is hashed",
    },
  },
  {
    name: "api keys: an unknown id is answered sooner than a wrong secret",
    guarantee: "G49",
    file: KEYS,
    find: "if (sent === undefined) return INVALID;",
    replace: "if (sent === undefined || source.find(sent.id) === undefined) return INVALID;",
    caughtBy: {
      file: KEYS_TEST,
      test: "requests with an API key > G49 an unknown id and a wrong secret take the same steps and get the same answer",
    },
  },
  {
    name: "api keys: an expired key is let in",
    guarantee: "G49",
    file: KEYS,
    find: "return expiresAtMs !== undefined && nowMs >= expiresAtMs;",
    replace: "return expiresAtMs !== undefined && nowMs >= expiresAtMs * 2;",
    caughtBy: {
      file: KEYS_TEST,
      test: "requests with an API key > a key is refused as expired from its time on, and not a millisecond before",
    },
  },
  {
    name: "api keys: a key that was verified once stays in force",
    guarantee: "G49",
    file: KEYS,
    find: "if (known !== undefined && source.find(known.id) === known.key) return answerFor(known.key);",
    replace: "if (known !== undefined) return known.key.identity;",
    caughtBy: {
      file: KEYS_TEST,
      test: "requests with an API key > G49 a key is verified once, and its end and its revocation count all the same",
    },
  },
  {
    name: "api keys: a revoked key is let in",
    guarantee: "G49",
    file: KEYS,
    find: "if (key.isRevoked) return INVALID;",
    replace: "",
    caughtBy: {
      file: KEYS_TEST,
      test: "requests with an API key > a revoked key is refused, also if it has expired",
    },
  },
  {
    name: "api keys: an unknown member of the file is passed over",
    guarantee: "G49",
    file: "src/streams/access/check-identity.ts",
    find: "if (check === undefined) problem(`${at}.${name} is not known`);",
    replace: "if (check === undefined) continue;",
    caughtBy: {
      file: "src/streams/access/key-document.test.ts",
      test: "a document of keys > a member of an object's prototype is not known",
    },
  },
  {
    name: "api keys: a file that others can read is taken",
    guarantee: "G49",
    file: "src/streams/runtimes/node-secret-file.ts",
    find: "(mode & notForOthers) !== 0) {",
    replace: "(mode & notForOthers) < 0) {",
    caughtBy: {
      file: FILE_TEST,
      test: "a file of keys > G49 with mode 420 it is refused, and neither read nor changed",
    },
  },
  {
    name: "a directory without its secret gets new keys in silence",
    guarantee: "G49",
    file: "src/streams/stores/file.ts",
    find: "if (!secret.isThere && store.world",
    replace: "if (secret.isThere && store.world",
    caughtBy: {
      file: "src/streams/stores/file/secret-file.test.ts",
      test: "the store warns of a copy without its secret, and not of a directory that never had keys",
    },
  },
  {
    name: "api keys: two changes at once do not take turns",
    guarantee: "G49",
    file: FILE,
    find: "      return await lockDirectory(directory);",
    replace: "      return await Promise.resolve({ release: () => Promise.resolve() });",
    caughtBy: {
      file: FILE_TEST,
      test: "changes at the same time > none is lost, and each sees those before it",
    },
  },
  {
    name: "api keys: a changed file is not read again",
    guarantee: "G49",
    file: "src/streams/runtimes/node-keys.ts",
    find: "for (const change of keys.replace(records)) onAudit(`API keys: ${change}`);",
    replace: "void [records, onAudit];",
    caughtBy: {
      file: "src/streams/runtimes/node-keys.test.ts",
      test: "a file that changes > a new key is let in and a revoked one refused, both within a second",
    },
  },
  {
    name: "api keys: a server that requires authentication starts without a credential",
    guarantee: "G40",
    file: "src/streams/runtimes/node-access.ts",
    find: "if (requireAuth) throw new HapaxError",
    replace: 'if (requireAuth && path === "") throw new HapaxError',
    caughtBy: {
      file: "src/streams/runtimes/node-access.test.ts",
      test: "G40 a server in memory starts with a warning, or not at all where authentication is required",
    },
  },
  {
    name: "api keys: a file of another user is taken",
    guarantee: "G49",
    file: "src/streams/runtimes/node-secret-file.ts",
    find: "return uid === processUid || uid === 0 || (processUid === 0 && uid === directoryUid);",
    replace: "return uid === processUid || processUid === 0 || uid !== directoryUid;",
    caughtBy: {
      file: "src/streams/runtimes/node-secret-file.test.ts",
      test: "G49 a file of 1001, for a process of 0, in a directory of 0 is trusted: false",
    },
  },
  {
    name: "api keys: a revoked key leaves its live readers open",
    guarantee: "G40",
    file: "src/streams/access/api-keys.ts",
    find: "if (now === old) continue;",
    replace: "if (now === old || now?.isRevoked === true) continue;",
    caughtBy: {
      file: "test/access/revocation.test.ts",
      test: "G40 a revoked key ends its live readers and its long-polls within a second or so, and no others",
    },
  },
];
