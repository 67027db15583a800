// PROTOCOL.md §21.1: refusals come before the body, and a broken function of authorization lets no client in.
import { connect } from "node:http2";
import { afterAll, describe, expect, test } from "vitest";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { ACTIONS, type Authorize, type Identity } from "../../src/streams/access/identity.ts";
import { openTlsStage } from "../kits/tls-server.ts";
import { call, members, openSocket, untilClosed } from "./raw-http.ts";

const ALL = [{ actions: ACTIONS }];
const PATIENCE_MS = 10_000;

const closing: (() => Promise<void>)[] = [];
afterAll(async () => {
  for (const close of closing) await close();
});

async function start(
  authorize: Authorize,
  more: { readonly hasFastLane?: boolean; readonly authorizeTimeoutMs?: number } = {},
): Promise<NodeServer & { readonly faults: unknown[] }> {
  const faults: unknown[] = [];
  const onFault = (error: unknown): void => void faults.push(error);
  const server = await startNodeServer({ store: "memory", port: 0, authorize, onFault, ...more });
  closing.push(() => server.stop());
  return { ...server, faults };
}

const IDENTITIES: Readonly<Record<string, Identity>> = {
  all: { name: "all", grants: ALL },
  reader: { name: "reader", grants: [{ actions: ["read"] }] },
  acme: { name: "acme", grants: ALL, namespace: "/v1/stream/acme" },
};

/** The credential is the name of an identity. */
const byName: Authorize = ({ header }) =>
  IDENTITIES[(header("authorization") ?? "").slice("Bearer ".length)] ?? { refused: "missing" };

const as = (name: string): Record<string, string> => ({ authorization: `Bearer ${name}` });

describe.each([{ hasFastLane: true }, { hasFastLane: false }])(
  "with hasFastLane=$hasFastLane",
  (options) => {
    describe.each([
      { who: "a stranger", head: "", status: 401 },
      { who: "a reader", head: "Authorization: Bearer reader\r\n", status: 403 },
    ])("a body of 100 MB of $who", ({ head, status }) => {
      test.each([
        { how: "that is announced", more: "", path: "/v1/stream/a" },
        {
          how: "that waits for 100 Continue",
          more: "Expect: 100-continue\r\n",
          path: "/v1/stream/a",
        },
        { how: "to a reserved path", more: "", path: "/_hapax/groups/g/join" },
      ])("G40 $how is refused before it is sent", async ({ more, path }) => {
        const { url } = await start(byName, options);
        const socket = await openSocket(url);
        const all = untilClosed(socket);
        const first = new Promise<string>((resolve) => {
          socket.once("data", (piece) => {
            resolve(piece.toString());
          });
        });
        socket.write(
          `POST ${path} HTTP/1.1\r\nHost: ${new URL(url).host}\r\n${head}${more}` +
            "Content-Type: text/plain\r\nContent-Length: 104857600\r\n\r\n",
        );
        const answer = await first;
        expect(answer).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
        // What would come next on the connection is not known.
        if (more !== "") expect(answer).toMatch(/\r\nConnection: close\r\n/i);
        socket.destroy();
        expect((await all).toString()).not.toContain("100 Continue");
      });
    });

    test("a body that waits for 100 Continue is asked for, if it is wanted", async () => {
      const { url } = await start(byName, options);
      const path = "/v1/stream/continued";
      await call("PUT", url, path, { headers: { ...as("all"), "content-type": "text/plain" } });
      const socket = await openSocket(url);
      const all = untilClosed(socket);
      socket.once("data", () => socket.write("hello"));
      socket.write(
        `POST ${path} HTTP/1.1\r\nHost: ${new URL(url).host}\r\nAuthorization: Bearer all\r\n` +
          "Connection: close\r\nExpect: 100-continue\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\n",
      );
      expect((await all).toString()).toMatch(/^HTTP\/1.1 100 Continue\r\n\r\nHTTP\/1.1 204 /);
      const { text } = await call("GET", url, path, { headers: as("all") });
      expect(text).toBe("hello");
    });

    test("G40 an answer about one action is not used for another", async () => {
      const { url } = await start(byName, options);
      const path = "/v1/stream/remembered";
      expect((await call("PUT", url, path, { headers: as("all"), body: "" })).status).toBe(201);
      const ask = (method: string, body?: string): Promise<number> =>
        call(method, url, path, {
          headers: { ...as("reader"), "content-type": "application/octet-stream" },
          ...(body === undefined ? {} : { body }),
        }).then(({ status }) => status);
      // Twice: the first answer is remembered.
      for (const _ of [1, 2]) {
        expect(await ask("GET")).toBe(200);
        expect(await ask("POST", "x")).toBe(403);
        expect(await ask("DELETE")).toBe(403);
        expect(await ask("PUT", "")).toBe(403);
      }
    });

    test("G40 a namespace comes from the identity, and from no header", async () => {
      const { url } = await start(byName, options);
      const path = "/v1/stream/other/a";
      await call("PUT", url, path, { headers: as("all"), body: "" });
      const names = ["Namespace", "X-Namespace", "Hapax-Namespace", "X-Hapax-Namespace"];
      names.push("Tenant", "X-Tenant", "X-Tenant-Id", "Hapax-Tenant", "X-Forwarded-Prefix");
      for (const name of names) {
        for (const value of ["/v1/stream/other", "/v1/stream", "other", ""]) {
          const headers = { ...as("acme"), [name]: value };
          const answer = await call("GET", url, path, { headers });
          expect([name, value, answer.status]).toEqual([name, value, 403]);
        }
      }
    });
  },
);

test("G40 over HTTP/2 a body of 100 MB is refused before it is sent", async () => {
  const stage = openTlsStage();
  closing.push(() => stage.close());
  const { url } = await stage.start({ authorize: byName });
  const session = connect(url, { ca: stage.authority.cert });
  const ask = (headers: Record<string, string>): Promise<unknown> =>
    new Promise((resolve, reject) => {
      const stream = session.request(
        { ":method": "POST", ":path": "/v1/stream/a", "content-length": "104857600", ...headers },
        { endStream: false },
      );
      stream.on("response", (answer) => {
        resolve(answer[":status"]);
        stream.close();
      });
      stream.on("error", reject);
    });
  expect(await ask({})).toBe(401);
  expect(await ask(as("reader"))).toBe(403);
  session.destroy();
});

const identity = { name: "all", grants: ALL };
const trap = (): never => {
  throw new Error("a trap");
};
const trapped = new Proxy(identity, { get: trap, has: trap, ownKeys: trap, getPrototypeOf: trap });

/** Answers that are no identity. Types say so too; a program without types can return them. */
const NONSENSE: Readonly<Record<string, () => unknown>> = {
  throws: trap,
  "throws undefined": () => {
    // oxlint-disable-next-line typescript/only-throw-error -- A function from outside may.
    throw undefined;
  },
  rejects: () => Promise.reject(new Error("rejected")),
  "rejects with an identity": () => Promise.reject(identity as unknown as Error),
  "returns undefined": () => undefined,
  "returns null": () => null,
  "returns an empty text": () => "",
  "returns true": () => true,
  "returns a function": () => () => identity,
  "returns a list": () => [identity],
  "returns an empty object": () => ({}),
  "returns a name alone": () => ({ name: "all" }),
  "returns grants alone": () => ({ grants: ALL }),
  "returns an unknown action": () => ({ name: "all", grants: [{ actions: ["everything"] }] }),
  "returns an unknown member": () => ({ ...identity, isAdmin: true }),
  "returns a namespace of another kind": () => ({ ...identity, namespace: 1 }),
  "returns a namespace outside": () => ({ ...identity, namespace: "/" }),
  "returns an end that is no number": () => ({ ...identity, expiresAtMs: "tomorrow" }),
  "returns an end that is NaN": () => ({ ...identity, expiresAtMs: NaN }),
  "returns an object that throws": () => trapped,
  "returns an object whose grants throw": () =>
    Object.defineProperty({ name: "all" }, "grants", { get: trap, enumerable: true }),
  "returns a refusal of an unknown kind": () => ({ refused: "perhaps", ...identity }),
  "returns a thenable": () => ({
    // oxlint-disable-next-line unicorn/no-thenable -- It is one that is no promise.
    then: (resolve: (value: unknown) => void) => {
      resolve(identity);
    },
  }),
  "resolves with undefined": () => Promise.resolve(),
  "resolves with an object that throws": () => Promise.resolve().then(() => [trapped]),
  hangs: () => new Promise(() => undefined),
};

describe("a function of authorization that", () => {
  /** `Authorization` names the answer. */
  const authorize: Authorize = (request) => {
    const kind = (request.header("authorization") ?? "").slice("Nonsense ".length);
    // Types are what the table breaks.
    return kind === "good" ? identity : (NONSENSE[kind]?.() as Identity);
  };

  test.each(Object.keys(NONSENSE))("G40 %s lets no client in", async (kind) => {
    const server = await start(authorize, { authorizeTimeoutMs: 50 });
    const { url, faults } = server;
    const headers = { authorization: `Nonsense ${kind}` };
    const signal = AbortSignal.timeout(PATIENCE_MS);
    for (const [method, path] of [
      ["PUT", "/v1/stream/a"],
      ["GET", "/_hapax/metrics"],
    ] as const) {
      const answer = await call(method, url, path, { headers, signal });
      expect([answer.status, members(answer).get("code")]).toEqual([
        503,
        "authentication_unavailable",
      ]);
      expect(answer.headers["retry-after"]).toBe("1");
      expect(answer.text).not.toMatch(/trap|rejected/);
    }
    expect(faults.length).toBe(kind.includes("refusal") ? 0 : 2);
    const good = { headers: { authorization: "Nonsense good" }, signal };
    expect((await call("GET", url, "/v1/stream/a", good)).status).toBe(404);
    expect((await call("GET", url, "/_hapax/metrics", good)).status).toBe(200);
  });

  test("G40 hangs holds no other request, and is not waited for longer than its time", async () => {
    const { url } = await start(authorize, { authorizeTimeoutMs: 2000 });
    const answered: string[] = [];
    const signal = AbortSignal.timeout(PATIENCE_MS);
    const ask = async (kind: string): Promise<number> => {
      const headers = { authorization: `Nonsense ${kind}` };
      const { status } = await call("GET", url, "/_hapax/streams", { headers, signal });
      answered.push(kind);
      return status;
    };
    const held = Array.from({ length: 100 }, () => ask("hangs"));
    const others = await Promise.all(Array.from({ length: 100 }, () => ask("good")));
    expect(new Set(others)).toEqual(new Set([200]));
    expect(new Set(answered)).toEqual(new Set(["good"]));
    expect(new Set(await Promise.all(held))).toEqual(new Set([503]));
  });
});
