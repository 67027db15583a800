// The store of objects over HTTP: time limits, secrets, lists without an end, and signatures that a real server checks. G60
import { afterAll, beforeAll, describe, expect, test, type TestContext } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { objectLog, openWindow, s3Objects, type S3Options } from "../../src/toolkit/window.ts";
import { FakeS3 } from "./fake-s3.ts";
import { CREDENTIALS, realServers, type S3Server } from "./s3-servers.ts";

const isLong = process.env["HAPAX_LONG"] === "1";
const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);
const SECRETS = {
  accessKeyId: "THE-KEY-ID",
  secretAccessKey: "THE-SECRET",
  sessionToken: "THE-TOKEN",
};
const URL_OF_NONE = "http://stage.test/bucket";

/** Everything that a log would show of an error, also what caused it. */
function shown(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return `${String(error)} ${error.stack} ${JSON.stringify(error)} ${shown(error.cause ?? "")}`;
}

const errorOf = async (work: () => unknown): Promise<unknown> => {
  try {
    return { not: "an error", value: await work() };
  } catch (error) {
    return error;
  }
};

function expectNoSecret(error: unknown): void {
  for (const secret of Object.values(SECRETS)) expect(shown(error)).not.toContain(secret);
}

/** A store that takes requests and never answers. It looks at no signal. */
const hanging = (options: Partial<S3Options> = {}) =>
  s3Objects({
    url: URL_OF_NONE,
    timeoutMs: 50,
    credentials: SECRETS,
    fetch: () => new Promise(() => undefined),
    ...options,
  });

describe("a store that hangs", () => {
  test("every call ends in time, also if credentials are late, and no error has a secret", async () => {
    const late = hanging({ credentials: () => new Promise(() => undefined) });
    const unsettled = hanging({
      fetch: async () =>
        new Response(new ReadableStream({ pull: () => new Promise(() => undefined) })),
    });
    for (const objects of [hanging(), late, unsettled]) {
      for (const call of [
        () => objects.create("a", bytesOf("x")),
        () => objects.get("a"),
        () => objects.list("a/"),
        () => objects.remove("a"),
      ]) {
        const error = await errorOf(call);
        expect(error).toMatchObject({ code: "unreachable" });
        expectNoSecret(error);
      }
    }
  });

  test("a write ends by its signal or its time, and the window closes in time", async () => {
    const fake = await FakeS3.start();
    let isHanging = false;
    const objects = s3Objects({
      url: fake.url,
      fetch: (url, init) => (isHanging ? new Promise(() => undefined) : fetch(url, init)),
    });
    const window = await openWindow({
      log: objectLog(objects),
      snapshots: objects,
      timeoutMs: 100,
    });
    isHanging = true;
    const signal = AbortSignal.timeout(20);
    await expect(window.write("a", bytesOf("x"), { signal })).rejects.toMatchObject({
      name: "TimeoutError",
    });
    await expect(window.write("a", bytesOf("x"))).rejects.toMatchObject({ code: "unreachable" });
    await window.close();
    await expect(window.write("a", bytesOf("x"))).rejects.toMatchObject({ code: "store_closed" });
    await fake.close();
  });
});

describe("secrets", () => {
  test("credentials that cannot be sent are refused, and not shown", async () => {
    for (const [name, value] of Object.entries(SECRETS)) {
      for (const spoilt of [`${value}\n`, `${value}\nx`, `${value}é`, ""]) {
        const credentials = { ...SECRETS, [name]: spoilt };
        const error = await errorOf(() => s3Objects({ url: URL_OF_NONE, credentials }));
        expect(error).toMatchObject({ code: "invalid_options" });
        expect(shown(error)).toContain(name);
        expectNoSecret(error);
        const objects = s3Objects({ url: URL_OF_NONE, credentials: () => credentials });
        const later = await errorOf(() => objects.get("a"));
        expect(later).toMatchObject({ code: "invalid_options" });
        expectNoSecret(later);
      }
    }
  });

  test("a URL with a password is refused, and not shown", async () => {
    for (const url of ["http://:THE-SECRET@stage.test/b", "http://u:THE-SECRET@stage.test/b"]) {
      const error = await errorOf(() => s3Objects({ url }));
      expect(error).toMatchObject({ code: "invalid_options" });
      expectNoSecret(error);
    }
  });

  test("words of the store that name the key are not shown", async () => {
    const words =
      "<Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>THE-KEY-ID</AWSAccessKeyId></Error>";
    const fetch = async () => new Response(words, { status: 403 });
    const objects = hanging({ timeoutMs: 60_000, fetch });
    const error = await errorOf(() => objects.get("a"));
    expect(shown(error)).toContain("403 SignatureDoesNotMatch");
    expectNoSecret(error);
  });
});

describe("answers without an end", () => {
  const answering = (answer: () => Response) =>
    hanging({ timeoutMs: 60_000, fetch: async () => answer() });

  test("a list that begins again, and a page that does not end, are given up", async () => {
    const page = "<IsTruncated>true</IsTruncated><NextContinuationToken>1</NextContinuationToken>";
    const again = answering(() => new Response(page));
    await expect(again.list("a/")).rejects.toMatchObject({ code: "unreachable" });
    let sent = 0;
    const chunk = new Uint8Array(1_048_576);
    const endless = new ReadableStream<Uint8Array>({
      pull: (controller) => {
        sent += 1;
        controller.enqueue(chunk);
      },
    });
    const long = answering(() => new Response(endless));
    await expect(long.list("a/")).rejects.toMatchObject({ code: "unreachable" });
    expect(sent).toBeLessThan(40);
  });

  test("a bucket that is not there is an error, and no empty log", async () => {
    const missing = answering(() => new Response("<Code>NoSuchBucket</Code>", { status: 404 }));
    await expect(objectLog(missing).extent()).rejects.toMatchObject({ code: "unreachable" });
    const empty = answering(() => new Response("<Code>NoSuchKey</Code>", { status: 404 }));
    expect((await objectLog(empty).extent()).segments).toEqual([]);
  });
});

describe("a real server", () => {
  const [{ start } = {}] = realServers();
  let server: S3Server | undefined;
  beforeAll(async () => {
    server = await start?.();
  }, 60_000);
  afterAll(() => server?.close());

  /** Skips the test where the server is not installed. */
  function optionsOf(context: TestContext): S3Server["options"] {
    if (server !== undefined) return server.options;
    const reason = "versitygw is not installed: see test/window/s3-servers.ts";
    console.warn(reason);
    return context.skip(reason);
  }

  test("versitygw takes what is signed with the secret", { timeout: 60_000 }, async (context) => {
    const options = optionsOf(context);
    // Every kind of character that a path or a query encodes in its own way.
    for (const prefix of ["plain", "a b", "ä+ö", "(x)!*'~", "50%", "a&b=c", "deep/er;@:,$"]) {
      const objects = s3Objects({ ...options, prefix });
      expect(await objects.create("log/1", bytesOf("x"))).toBe("stored");
      expect(await objects.create("log/1", bytesOf("y"))).toBe("occupied");
      expect(await objects.get("log/1")).toEqual(bytesOf("x"));
      expect(await objects.get("log/2")).toBeUndefined();
      expect(await objects.list("log/")).toEqual(["log/1"]);
      await objects.remove("log/1");
      expect(await objects.list("log/")).toEqual([]);
    }
  });

  test("versitygw refuses what is signed otherwise, and that is not taken for an empty log", async (context) => {
    const options = optionsOf(context);
    const { accessKeyId, secretAccessKey } = CREDENTIALS;
    const clock = { ...systemClock, nowMs: () => Date.now() - 3_600_000 };
    const wrong: [Partial<S3Options>, RegExp][] = [
      [{ credentials: { accessKeyId, secretAccessKey: "THE-SECRET" } }, /403 SignatureDoesNotM/],
      [{ credentials: { accessKeyId: "THE-KEY-ID", secretAccessKey } }, /404 XAdminUserNotFound/],
      [{ clock }, /403 RequestTimeTooSkewed/],
      [{ url: `${new URL(options.url).origin}/no-such-bucket` }, /404 NoSuchBucket/],
    ];
    for (const [change, words] of wrong) {
      const objects = s3Objects({ ...options, ...change });
      const error = await errorOf(() => objects.create("a", bytesOf("x")));
      expect(shown(error)).toMatch(words);
      expectNoSecret(error);
      expect(shown(error)).not.toContain(secretAccessKey);
      await expect(objectLog(objects).extent()).rejects.toMatchObject({ code: "unreachable" });
    }
  });

  test("a list of versitygw has all objects", { timeout: 120_000 }, async (context) => {
    const objects = s3Objects({ ...optionsOf(context), prefix: "many" });
    // A page has 1,000.
    const names = Array.from({ length: isLong ? 2_500 : 50 }, (_, at) => `log/${1_000_000 + at}`);
    for (let at = 0; at < names.length; at += 50)
      await Promise.all(names.slice(at, at + 50).map((name) => objects.create(name, bytesOf("x"))));
    expect(await objects.list("log/")).toEqual(names);
  });
});
