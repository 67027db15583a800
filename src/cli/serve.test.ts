import { describe, expect, test } from "vitest";

import { hapax } from "../../test/kits/cli-harness.ts";
import type { RunningServer, ServeOptions, StopSignal } from "./context.ts";

/** Starts `serve` with a server that only notes what it was given. */
async function serve(
  words: readonly string[],
  env: Readonly<Record<string, string>> = {},
  signals: readonly StopSignal[] = ["SIGTERM"],
) {
  const seen: ServeOptions[] = [];
  const order: string[] = [];
  let send = (_signal: StopSignal): void => {};
  const result = await hapax(["serve", ...words], {
    env,
    startServer: async (options) => {
      seen.push(options);
      await new Promise((resolve) => setImmediate(resolve));
      order.push("accepting");
      const server: RunningServer = {
        url: `http://${options.host}:${String(options.port)}`,
        durability: options.dir === "/disk" ? "fsync" : "memory",
        reload: () => ({ changed: [] }),
        stop: async () => {
          order.push("stopped");
          for (const signal of signals.slice(1)) send(signal);
          await Promise.resolve();
        },
      };
      return server;
    },
    onReady: (sender) => {
      send = sender;
    },
    onOutput: (text) => {
      order.push(text.trim());
      const [first] = signals;
      if (first !== undefined) send(first);
    },
  });
  return { ...result, options: seen[0], order };
}

describe("options", () => {
  test("defaults are loopback, 4437 and the limits of limits.ts", async () => {
    expect((await serve([])).options).toEqual({
      host: "127.0.0.1",
      port: 4437,
      dir: "./hapax-data",
      takeover: "refuse",
      replication: "standby",
      warmCopies: true,
      durability: "fsync",
      requireAuth: false,
      longPollMs: 30_000,
      bodyBytesMax: 16 * 1024 * 1024,
      sseSecondsMax: 60,
      keyWindowSeconds: 86_400,
      keyMax: 100_000,
      keyOverflow: "evict",
      retentionSeconds: 0,
      retentionBytes: 0,
      jwtClaim: "hapax",
      jwtLeewaySeconds: 30,
      corsOrigins: [],
      insecurePublic: false,
      quotas: {},
      stateOffsets: false,
      registry: false,
      testFaults: false,
      allowLoopbackWebhooks: true,
      logFormat: "auto",
      logLevel: "info",
      logRequests: "none",
      logSample: 1,
    });
  });

  test("a flag wins over the environment, and the environment over the default", async () => {
    const env = {
      HAPAX_PORT: "1",
      HAPAX_LONG_POLL_MS: "500",
      HAPAX_TEST_FAULTS: "1",
      HAPAX_DIR: "",
    };
    const { options } = await serve(["--port", "2", "--public-url", "https://a.example/"], env);
    expect(options).toMatchObject({
      port: 2,
      longPollMs: 500,
      testFaults: true,
      publicUrl: "https://a.example",
    });
    expect(options?.dir).toBe("./hapax-data");
  });

  test("pages of other origins are allowed by flags, or by a variable with commas", async () => {
    const flags = ["--cors-origin", "https://a.example", "--cors-origin", "http://b.example:81"];
    const env = { HAPAX_CORS_ORIGINS: "https://c.example, https://d.example" };
    const byFlags = await serve(flags, env);
    expect(byFlags.options?.corsOrigins).toEqual(["https://a.example", "http://b.example:81"]);
    const byVariable = await serve([], env);
    expect(byVariable.options?.corsOrigins).toEqual(["https://c.example", "https://d.example"]);
    expect((await serve(["--cors-origin", "*"])).options?.corsOrigins).toBe("*");
    for (const wrong of [
      "a.example",
      "https://a.example/",
      "https://a.example:443",
      "null",
      "ftp://a",
    ]) {
      const refused = await serve(["--cors-origin", wrong]);
      expect(refused.code).toBe(2);
      expect(refused.stderr).toContain(`--cors-origin is "${wrong}"; allowed: an origin such as`);
    }
  });

  test("webhooks to this machine can be switched off, by a flag and by a variable", async () => {
    const byFlag = await serve(["--no-loopback-webhooks"]);
    expect(byFlag.options?.allowLoopbackWebhooks).toBe(false);
    const byVariable = await serve([], { HAPAX_NO_LOOPBACK_WEBHOOKS: "1" });
    expect(byVariable.options?.allowLoopbackWebhooks).toBe(false);
  });

  test("the keys of streams have defaults that flags and variables change", async () => {
    const env = { HAPAX_KEY_WINDOW: "60", HAPAX_KEY_MAX: "7", HAPAX_KEY_OVERFLOW: "reject" };
    const { options } = await serve(["--key-max", "8"], env);
    expect(options).toMatchObject({ keyWindowSeconds: 60, keyMax: 8, keyOverflow: "reject" });
    const wrong = await serve(["--key-window", "0", "--key-overflow", "drop"], {
      HAPAX_KEY_MAX: "10000001",
    });
    expect(wrong.code).toBe(2);
    expect(wrong.stderr).toContain(
      '--key-window is "0"; allowed: a whole number from 1 to 31622400',
    );
    expect(wrong.stderr).toContain('--key-overflow is "drop"; allowed: evict, reject');
    expect(wrong.stderr).toContain(
      'HAPAX_KEY_MAX is "10000001"; allowed: a whole number from 1 to 10000000',
    );
  });

  test("--memory keeps nothing on disk, and excludes --dir", async () => {
    expect((await serve(["--memory"])).options).not.toHaveProperty("dir");
    const both = await hapax(["serve", "--memory", "--dir", "/disk", "--durability", "none"]);
    expect(both.code).toBe(2);
    expect(both.stderr).toContain("--dir and --memory exclude each other");
    expect(both.stderr).toContain('--durability is "none"; allowed: replicated, fsync, os');
    expect((await serve([], { HAPAX_DURABILITY: "os" })).options?.durability).toBe("os");
  });

  test("all problems are reported together with field, value and range", async () => {
    const words = ["--port", "65536", "--long-poll-ms", "1e3", "--public-url", "ftp://x"];
    const result = await serve(words, { HAPAX_SSE_SECONDS_MAX: "-1", HAPAX_TEST_FAULTS: "yes" });
    expect(result.code).toBe(2);
    expect(result.options).toBeUndefined();
    expect(result.stderr).toContain('--port is "65536"; allowed: a whole number from 0 to 65535');
    expect(result.stderr).toContain('--long-poll-ms is "1e3"; allowed: a whole number from 1');
    expect(result.stderr).toContain('--public-url is "ftp://x"; allowed: an http or https URL');
    expect(result.stderr).toContain('HAPAX_SSE_SECONDS_MAX is "-1"; allowed');
    expect(result.stderr).toContain('HAPAX_TEST_FAULTS is "yes"; allowed: 1, true, 0, false');
  });

  test.each(["0.0.0.0", "::", "192.168.1.2", "example.org", "128.0.0.1", "127.0.0.1.evil.example"])(
    "host %s is refused without --insecure-public",
    async (host) => {
      const refused = await serve(["--host", host]);
      expect(refused.code).toBe(2);
      expect(refused.stderr).toContain("no authentication");
      expect(refused.options).toBeUndefined();
      expect((await serve(["--host", host, "--insecure-public"])).options?.host).toBe(host);
    },
  );

  test("--require-auth refuses to start without a credential, and says where it looked", async () => {
    const flags = ["--dir", "/nowhere", "--require-auth"];
    const refused = await serve(flags);
    expect([refused.code, refused.options]).toEqual([2, undefined]);
    expect(refused.stderr).toContain("--require-auth: authentication is required");
    expect(refused.stderr).toContain("there is no /nowhere/tokens.json; make a key with");
    expect((await serve(["--memory"], { HAPAX_REQUIRE_AUTH: "1" })).code).toBe(2);
    const token = { HAPAX_SERVER_TOKEN: "t".repeat(32) };
    expect((await serve(flags, token)).options?.requireAuth).toBe(true);
    expect((await serve([...flags, "--signing-keys-file", "/keys"])).options).toBeDefined();
  });

  test("an empty token is a mistake, and not no token", async () => {
    const refused = await serve([], { HAPAX_SERVER_TOKEN: "" });
    expect([refused.code, refused.options]).toEqual([2, undefined]);
    expect(refused.stderr).toContain("HAPAX_SERVER_TOKEN is set and empty; set it to a token");
  });

  test("a certificate and its key come together, by flags or by the environment", async () => {
    const pair = { certFile: "/c.pem", keyFile: "/k.pem" };
    const flags = ["--tls-cert", "/c.pem", "--tls-key", "/k.pem"];
    expect((await serve(flags)).options?.tls).toEqual(pair);
    const env = {
      HAPAX_TLS_CERT: "/c.pem",
      HAPAX_TLS_KEY: "/k.pem",
      HAPAX_TLS_CLIENT_CA: "/a.pem",
    };
    expect((await serve([], env)).options?.tls).toEqual({ ...pair, clientCaFile: "/a.pem" });
    expect((await serve([])).options?.tls).toBeUndefined();
  });

  test.each([
    [["--tls-cert", "/c.pem"], "--tls-cert needs --tls-key as well"],
    [["--tls-key", "/k.pem"], "--tls-key needs --tls-cert as well"],
    [["--tls-client-ca", "/a.pem"], "--tls-client-ca needs --tls-cert as well"],
  ])("half of a certificate is refused: %s", async (words, problem) => {
    const refused = await serve(words);
    expect([refused.code, refused.options]).toEqual([2, undefined]);
    expect(refused.stderr).toContain(problem);
  });

  test.each(["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])(
    "host %s needs no flag",
    async (host) => {
      expect((await serve(["--host", host])).code).toBe(0);
    },
  );
});

describe("serving", () => {
  test("the ready line stands alone on stdout, after the server accepts requests", async () => {
    const result = await serve([]);
    expect(result.stdout).toBe("hapax listening on http://127.0.0.1:4437 (durability: memory)\n");
    expect(result.stderr).toContain("streams live in memory: they are gone when this process ends");
    expect(result.order).toEqual([
      "accepting",
      "hapax listening on http://127.0.0.1:4437 (durability: memory)",
      "stopped",
    ]);
  });

  test("where the data lives, and what it survives, is said", async () => {
    const onDisk = await serve(["--dir", "/disk"]);
    expect(onDisk.stderr).toContain("streams live in /disk and survive a power cut");
    expect(onDisk.stdout).toContain("(durability: fsync)");
    expect((await serve(["--memory"])).stderr).toContain("streams live in memory");
  });

  test("one signal drains and ends with 0; a second one ends at once", async () => {
    expect(await serve([], {}, ["SIGINT"])).toMatchObject({ code: 0, exits: [] });
    expect((await serve([], {}, ["SIGINT", "SIGINT"])).exits).toEqual([130]);
    expect((await serve([], {}, ["SIGINT", "SIGTERM"])).exits).toEqual([143]);
  });

  test.each([
    [["--log-format", "text"], false],
    [[], true],
  ])("notes and audit entries are lines on stderr: %j", async (flags, isTerminal) => {
    let send = (_signal: StopSignal): void => {};
    const result = await hapax(["serve", "--memory", ...flags], {
      isTerminal,
      startServer: (_options, { log, onAudit }) => {
        const time = "2026-01-01T00:00:00.000Z";
        log({ time, level: "info", event: "note", message: "a note\u001b[2J" });
        log({ time, level: "debug", event: "note", message: "too much" });
        const target = "/v1/stream/\u001b[2J\nhapax: forged";
        onAudit({ time, act: "stream.delete", outcome: "done", target, details: { n: 1 } });
        return Promise.resolve({
          url: "http://test",
          durability: "memory",
          reload: () => ({ changed: [] }),
          stop: () => Promise.resolve(),
        });
      },
      onReady: (sender) => {
        send = sender;
      },
      onOutput: () => {
        send("SIGTERM");
      },
    });
    expect(result.code).toBe(0);
    expect(result.stderr).toContain("hapax: a note\\x1b[2J\n");
    expect(result.stderr).not.toContain("too much");
    expect(result.stderr).toContain(
      'hapax: 2026-01-01T00:00:00.000Z audit: stream.delete done target="/v1/stream/\\u001b[2J\\nhapax: forged" n=1\n',
    );
  });

  test("a port in use is one line and exit code 1", async () => {
    const result = await hapax(["serve"], {
      startServer: () => Promise.reject(Object.assign(new Error("x"), { code: "EADDRINUSE" })),
    });
    expect(result).toMatchObject({ code: 1, stdout: "" });
    expect(result.stderr).toMatch(/^hapax: cannot listen on 127\.0\.0\.1 port 4437 .*\n$/);
  });
});
