// One table of options: flags, variables, the file, the check, the schema. docs/guides/command-line.md, "Configuration"
import { checkQuotas } from "../streams/access/check-identity.ts";
import { Ajv2020 } from "ajv/dist/2020.js";
import { describe, expect, test } from "vitest";

import { hapax } from "../../test/kits/cli-harness.ts";
import { decideReload } from "../streams/server/reload.ts";
import { resolveServerOptions } from "../streams/server/options.ts";
import { configSchema } from "./config-schema.ts";
import { type OptionTable, resolveTable, showValue } from "./configuration.ts";
import { PATH, wholeNumber } from "./option-kinds.ts";
import { SERVE_TABLE, type ServeConfiguration } from "./serve-options.ts";

const FILE = "hapax.config.json";

interface Shown {
  readonly isValid: boolean;
  readonly file?: string;
  readonly options: Readonly<Record<string, { readonly value?: unknown; readonly from: string }>>;
}

async function check(
  file: unknown,
  words: readonly string[] = [],
  env: Readonly<Record<string, string>> = {},
) {
  const files = file === undefined ? {} : { [FILE]: JSON.stringify(file) };
  return hapax(["config", "check", ...words], { files, env });
}

async function shown(...args: Parameters<typeof check>): Promise<Shown> {
  const [file, words = [], env] = args;
  const { stdout } = await check(file, [...words, "--json"], env);
  return JSON.parse(stdout) as Shown;
}

describe("where a value is from", () => {
  test("a flag wins over a variable, a variable over the file, the file over the default", async () => {
    const file = { port: 1, longPollMs: 10, keyMax: 100 };
    const env = { HAPAX_PORT: "2", HAPAX_LONG_POLL_MS: "20" };
    const { options } = await shown(file, ["--port", "3"], env);
    expect(options["port"]).toMatchObject({ value: 3, from: "flag", name: "--port" });
    expect(options["longPollMs"]).toMatchObject({
      value: 20,
      from: "variable",
      name: "HAPAX_LONG_POLL_MS",
    });
    expect(options["keyMax"]).toMatchObject({ value: 100, from: "file" });
    expect(options["host"]).toMatchObject({ value: "127.0.0.1", from: "default" });
    expect(Object.keys(options)).toEqual(Object.keys(SERVE_TABLE));
  });

  test("a switch of the file is overruled by a variable, and the file says what is, not what is not", async () => {
    const file = { allowLoopbackWebhooks: false, testFaults: true };
    const off = { HAPAX_NO_LOOPBACK_WEBHOOKS: "0", HAPAX_TEST_FAULTS: "0" };
    const byFile = (await shown(file)).options;
    expect([byFile["allowLoopbackWebhooks"]?.value, byFile["testFaults"]?.value]).toEqual([
      false,
      true,
    ]);
    const byVariable = (await shown(file, [], off)).options;
    expect([byVariable["allowLoopbackWebhooks"]?.value, byVariable["testFaults"]?.value]).toEqual([
      true,
      false,
    ]);
  });

  test("the file is the flag's, else the variable's, else hapax.config.json, else there is none", async () => {
    const files = { [FILE]: '{"port": 1}', "b.json": '{"port": 2}', "c/d.json": '{"port": 3}' };
    const env = { HAPAX_CONFIG: "b.json" };
    const portOf = async (words: readonly string[], given = {}): Promise<unknown> => {
      const result = await hapax(["config", "check", "--json", ...words], { files, env: given });
      return (JSON.parse(result.stdout) as Shown).options["port"]?.value;
    };
    expect(await portOf([])).toBe(1);
    expect(await portOf([], env)).toBe(2);
    expect(await portOf(["--config", "c/d.json"], env)).toBe(3);
    expect(await portOf(["c/d.json"], env)).toBe(3);
    expect((await shown(undefined)).file).toBeUndefined();
    const missing = await hapax(["config", "check", "--config", "e.json"], { files });
    expect(missing).toMatchObject({ code: 2, stdout: "" });
    expect(missing.stderr).toContain('cannot read "e.json" (ENOENT)');
    const two = await hapax(["config", "check", "b.json", "--config", "c/d.json"], { files });
    expect(two.stderr).toContain("name two files");
  });

  test("a path in the file is relative to the file", async () => {
    const files = { "etc/a.json": '{"dir": "data"}', "etc/b.json": '{"dir": "/data"}' };
    for (const [file, dir] of [
      ["etc/a.json", "etc/data"],
      ["etc/b.json", "/data"],
    ] as const) {
      const { stdout } = await hapax(["config", "check", file, "--json"], { files });
      expect((JSON.parse(stdout) as Shown).options["dir"]?.value).toBe(dir);
    }
    expect((await shown({ dir: "data" })).options["dir"]?.value).toBe("data");
  });
});

describe("config check", () => {
  test("is a table for people: value, source, and what a change needs", async () => {
    const { code, stdout } = await check({ corsOrigins: ["https://a.example"] }, ["--memory"]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^valid: hapax\.config\.json\n\nOPTION +VALUE +FROM +CHANGES\n/);
    expect(stdout).toMatch(/^corsOrigins +\["https:\/\/a\.example"\] +file +by SIGHUP$/m);
    expect(stdout).toMatch(/^memory +true +--memory +by a restart$/m);
    expect(stdout).toMatch(/^dir +\(none\) +default +by a restart$/m);
    expect(stdout).toMatch(/^publicUrl +\(none\) +default +by a restart$/m);
    expect((await check(undefined)).stdout).toMatch(/^valid: no configuration file\n/);
  });

  test("G39 says every problem at once: member, value and what is allowed", async () => {
    const file = {
      port: 65_536,
      durability: "none",
      testFaults: 1,
      corsOrigins: ["https://a.example", "nonsense", 7],
      publicUrl: null,
      prot: 1,
      "long-poll-ms": 5,
      constructor: 1,
    };
    const { code, stdout, stderr } = await check(file, ["--key-max", "0"], {
      HAPAX_KEY_WINDOW: "x",
    });
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toContain("hapax: 11 options are not valid\n");
    for (const line of [
      "port in hapax.config.json is 65536; allowed: a whole number from 0 to 65535",
      'durability in hapax.config.json is "none"; allowed: "replicated", "fsync", "os"',
      "testFaults in hapax.config.json is 1; allowed: true, false",
      'corsOrigins in hapax.config.json is "nonsense"; allowed: "*", or a list',
      'corsOrigins in hapax.config.json is 7; allowed: "*", or a list',
      "publicUrl in hapax.config.json is null; allowed: an http or https URL",
      '"prot" in hapax.config.json is no option; did you mean "port"?',
      '"long-poll-ms" in hapax.config.json is no option; did you mean "longPollMs"?',
      '"constructor" in hapax.config.json is no option',
      '--key-max is "0"; allowed: a whole number from 1 to 10000000',
      'HAPAX_KEY_WINDOW is "x"; allowed: a whole number from 1 to 31622400',
    ]) {
      expect(stderr).toContain(`  ${line}`);
    }
    const asJson = await check(file, ["--json"]);
    const { error } = JSON.parse(asJson.stderr) as { error: { advice: readonly string[] } };
    expect([asJson.code, error.advice.length]).toEqual([2, 9]);
  });

  test("options that exclude or need each other are checked over all sources", async () => {
    const both = await check({ dir: "data" }, ["--memory"]);
    expect(both.stderr).toContain("dir in hapax.config.json and --memory exclude each other");
    const open = await check({ host: "0.0.0.0" });
    expect([open.code, open.stderr]).toEqual([
      2,
      expect.stringContaining(
        'host in hapax.config.json is "0.0.0.0"; allowed: a loopback address',
      ),
    ]);
    expect((await check({ host: "0.0.0.0", insecurePublic: true })).code).toBe(0);
  });

  test("tokens need keys, an issuer and an audience, and keys come over https", async () => {
    const whole = { jwtJwks: "https://a.example/jwks", jwtIssuer: "a", jwtAudience: ["b"] };
    expect((await check(whole)).code).toBe(0);
    for (const member of Object.keys(whole)) {
      const { code, stderr } = await check({ ...whole, [member]: undefined });
      expect([code, stderr]).toEqual([2, expect.stringMatching(/needs --jwt-\w+ as well/)]);
    }
    for (const jwtJwks of ["http://a.example/jwks", "ftp://a.example", "https://a:b@a.example/"]) {
      const { code, stderr } = await check({ ...whole, jwtJwks });
      expect([code, stderr]).toEqual([2, expect.stringContaining("allowed: a path, or an https")]);
    }
    const secret = { ...whole, jwtJwks: "https://a.example/jwks?key=hidden" };
    expect((await shown(secret)).options["jwtJwks"]?.value).toBe("https://a.example/jwks?***");
    expect((await check(secret)).stdout).not.toContain("hidden");
    const wrong = await check({ ...whole, jwtJwks: "https://me:hidden@a.example/jwks" });
    expect([wrong.code, wrong.stderr.includes("hidden")]).toEqual([2, false]);
    const flags = ["--jwt-audience", "c", "--jwt-audience", "d"];
    expect((await shown(whole, flags)).options["jwtAudience"]?.value).toEqual(["c", "d"]);
    const env = { HAPAX_JWT_AUDIENCE: "e, f" };
    expect((await shown(whole, [], env)).options["jwtAudience"]?.value).toEqual(["e", "f"]);
  });

  test("tokens and signed URLs are authentication: the server may listen beyond this machine", async () => {
    const tokens = { jwtJwks: "./jwks.json", jwtIssuer: "a", jwtAudience: ["b"] };
    expect((await check({ host: "0.0.0.0", ...tokens })).code).toBe(0);
    expect((await check({ host: "0.0.0.0", signingKeysFile: "keys.json" })).code).toBe(0);
    expect((await check({ host: "0.0.0.0" })).code).toBe(2);
  });

  test.each([
    ["[]", "is not a JSON object"],
    ["7", "is not a JSON object"],
    ["", "is not JSON: it ends too early"],
    ['{\n  "port": 1,\n}', "is not JSON: see line 3 column 1"],
    ['{"a": hunter2}', "is not JSON\n"],
    [`{"a": "${"x".repeat(1024 * 1024)}"}`, "has more than 1048576 bytes"],
  ])(
    "a file that is no configuration is refused, and not quoted: case %#",
    async (text, problem) => {
      const { code, stderr } = await hapax(["config", "check"], { files: { [FILE]: text } });
      expect([code, stderr]).toEqual([2, expect.stringContaining(`${FILE} ${problem}`)]);
      expect(stderr).not.toContain("hunter2");
    },
  );

  test("an act that there is not is refused with the one that was meant", async () => {
    const { code, stderr } = await hapax(["config", "chek"]);
    expect([code, stderr]).toEqual([2, expect.stringContaining("did you mean check?")]);
    expect((await hapax(["config", "schema", "x"])).code).toBe(2);
  });
});

describe("a secret option", () => {
  const row = { help: "h", value: "v", fallback: undefined, reload: "restart", isSecret: true };
  const table = {
    pin: { ...row, flag: "pin", env: "PIN", kind: wholeNumber(0, 9999) },
    key: { ...row, flag: "key", env: "KEY", kind: PATH },
  } as OptionTable;

  test("is printed nowhere, neither its value nor a wrong one", () => {
    const problems: string[] = [];
    const file = { path: FILE, members: new Map<string, unknown>([["key", "hunter2"]]) };
    const none = { values: () => [] };
    const settings = resolveTable(table, none, { PIN: "hunter3" }, file, problems);
    expect(problems).toEqual(["PIN is not valid; allowed: a whole number from 0 to 9999"]);
    expect(settings.map((one) => showValue(one, settings))).toEqual(["(none)", "(secret)"]);
  });
});

/** For every member: values that the file may have, and others. A new option needs a row here too. */
const EXAMPLES: Readonly<
  Record<keyof ServeConfiguration, { readonly good: unknown[]; readonly bad: unknown[] }>
> = {
  host: {
    good: ["127.0.0.1", "::1", "[::1]", "localhost", "a.example"],
    bad: ["", 1, "a b", "a/b"],
  },
  port: { good: [0, 65_535], bad: [-1, 65_536, 1.5, "80", null] },
  dir: { good: ["./data", "/var/lib"], bad: ["", 1, null, "a\0b"] },
  durability: { good: ["fsync", "os"], bad: ["FSYNC", "memory", true] },
  store: {
    good: ["postgres://db/name", "postgresql://u:p@a,b:5433/name?sslmode=require"],
    bad: ["db", "http://db/name", "postgres://", 5],
  },
  takeover: { good: ["refuse", "wait"], bad: ["now", true] },
  replication: { good: ["standby", "storage"], bad: ["none", true] },
  node: { good: ["a"], bad: [5] },
  peers: { good: ["0.0.0.0:4438"], bad: [4438] },
  peerKeyFile: { good: ["./peer-key"], bad: [""] },
  advertise: { good: ["http://n1:4437"], bad: ["n1:4437", 5] },
  warmCopies: { good: [true, false], bad: ["true", 1] },
  memory: { good: [true, false], bad: ["true", 1] },
  tokensFile: { good: ["./tokens.json", "/etc/hapax/tokens.json"], bad: ["", 1, null] },
  longPollMs: { good: [1, 600_000], bad: [0, 600_001, "1"] },
  bodyBytesMax: { good: [1, 1024], bad: [0, 1e12] },
  sseSecondsMax: { good: [1, 86_400], bad: [0, 86_401] },
  keyWindowSeconds: { good: [1, 31_622_400], bad: [0, 31_622_401] },
  keyMax: { good: [1, 10_000_000], bad: [0, 10_000_001] },
  keyOverflow: { good: ["evict", "reject"], bad: ["drop", 1] },
  retentionSeconds: { good: [0, 86_400], bad: [-1, "1"] },
  retentionBytes: { good: [0, 2 ** 40], bad: [-1, 0.5] },
  publicUrl: {
    good: ["https://a.example", "HTTP://a.example:81/below/"],
    bad: ["ftp://a", "a.example", "https://a.example?b", "http:a.example", 1],
  },
  tlsCert: { good: ["./cert.pem", "/cert.pem"], bad: ["", 1] },
  tlsKey: { good: ["./key.pem"], bad: ["", false] },
  tlsClientCa: { good: ["./ca.pem"], bad: ["", null] },
  jwtJwks: {
    good: ["./jwks.json", "https://a.example/jwks", "http://[::1]:81/jwks"],
    bad: ["", 1],
  },
  jwtIssuer: { good: ["https://a.example/"], bad: ["", 1, "a\nb", "x".repeat(513)] },
  jwtAudience: { good: [["a"], ["a", "https://b.example"]], bad: ["a", [], [""], [1], ["a\0"]] },
  jwtClaim: { good: ["hapax", "https://a.example/hapax"], bad: ["", null] },
  jwtLeewaySeconds: { good: [0, 600], bad: [-1, 601, "30"] },
  signingKeysFile: { good: ["./keys.json"], bad: ["", 1] },
  corsOrigins: {
    good: ["*", [], ["*"], ["https://a.example", "HTTP://b.example:81"]],
    bad: ["https://a.example", [1], ["a.example"], ["https://a.example/"], true],
  },
  insecurePublic: { good: [true, false], bad: ["yes"] },
  requireAuth: { good: [false], bad: ["yes", 1] },
  quotas: {
    good: [{}, { appendsPerSecond: 100, streamsMax: 0 }, { storedBytesMax: 2 ** 53 - 1 }],
    bad: [[], null, "appendsPerSecond=1", { appends: 1 }, { requestsMax: -1 }, { streamsMax: 1.5 }],
  },
  stateOffsets: { good: [true, false], bad: [0] },
  registry: { good: [true, false], bad: ["yes"] },
  allowLoopbackWebhooks: { good: [true, false], bad: [null] },
  logFormat: { good: ["auto", "text", "json"], bad: ["xml", true] },
  logLevel: { good: ["error", "warn", "info", "debug"], bad: ["trace", 1] },
  logRequests: { good: ["none", "errors", "all"], bad: ["some", true] },
  logSample: { good: [0, 0.01, 1], bad: [-0.1, 1.1, "0.5"] },
  auditFile: { good: ["./audit.log", "/var/log/hapax/audit.log"], bad: ["", 1] },
  testFaults: { good: [true, false], bad: ["1"] },
};

describe("quotas", () => {
  const given = { appendsPerSecond: 100, streamsMax: 7 };

  test("are flags, a variable or an object of the file", async () => {
    const flags = ["--quota", "appendsPerSecond=100", "--quota", "streamsMax=7"];
    const env = { HAPAX_QUOTAS: "appendsPerSecond=100, streamsMax=7" };
    expect((await shown(undefined, flags)).options["quotas"]?.value).toEqual(given);
    expect((await shown(undefined, [], env)).options["quotas"]?.value).toEqual(given);
    expect((await shown({ quotas: given })).options["quotas"]?.value).toEqual(given);
    expect((await shown({})).options["quotas"]?.value).toEqual({});
  });

  test.each(["appends=1", "appendsPerSecond", "streamsMax=-1", "streamsMax=1.5", "streamsMax="])(
    "--quota %s is refused",
    async (words) => {
      const { code, stderr } = await check(undefined, ["--quota", words]);
      expect(code).not.toBe(0);
      expect(stderr).toContain("allowed: name=number with streamsMax, storedBytesMax");
    },
  );
});

describe("the schema", () => {
  const validate = new Ajv2020({ strict: true }).compile(configSchema(SERVE_TABLE));

  test.each(Object.entries(EXAMPLES))("and the table agree about %s", (member, { good, bad }) => {
    const isTaken = (value: unknown): boolean => {
      const problems: string[] = [];
      const file = { path: FILE, members: new Map([[member, value]]) };
      resolveTable(SERVE_TABLE, { values: () => [] }, {}, file, problems);
      return problems.length === 0;
    };
    for (const value of good) {
      expect([value, isTaken(value), validate({ [member]: value })]).toEqual([value, true, true]);
    }
    for (const value of bad) {
      expect([value, isTaken(value), validate({ [member]: value })]).toEqual([value, false, false]);
    }
  });

  test("has every member of the table with its default, and refuses all others", async () => {
    const { code, stdout } = await hapax(["config", "schema"]);
    const printed = JSON.parse(stdout) as { properties: Record<string, { default?: unknown }> };
    expect(code).toBe(0);
    expect(printed).toEqual(JSON.parse(JSON.stringify(configSchema(SERVE_TABLE))));
    expect(Object.keys(printed.properties)).toEqual(["$schema", ...Object.keys(SERVE_TABLE)]);
    expect(
      validate(
        Object.fromEntries(
          Object.entries(printed.properties).flatMap(([name, { default: value }]) =>
            value === undefined ? [] : [[name, value]],
          ),
        ),
      ),
    ).toBe(true);
    expect([validate({ prot: 1 }), validate([]), validate({ $schema: "./a.json" })]).toEqual([
      false,
      false,
      true,
    ]);
    expect((await check({ $schema: "./a.json" })).code).toBe(0);
  });
});

test("the table says of each option what the server does with it at a reload", () => {
  const other: Partial<Record<string, unknown>> = {
    longPollMs: 1,
    bodyBytesMax: 1,
    sseSecondsMax: 1,
    keyWindowSeconds: 1,
    keyMax: 1,
    keyOverflow: "reject",
    retentionSeconds: 86_400,
    retentionBytes: 1_000_000,
    publicUrl: "https://a.example",
    corsOrigins: "*",
    insecurePublic: true,
    quotas: { requestsMax: 5 },
    stateOffsets: true,
    registry: true,
    allowLoopbackWebhooks: false,
    logRequests: "all",
    logSample: 0.5,
    testFaults: true,
  };
  const reach = { address: "127.0.0.1", hasAuthentication: true, checkQuotas };
  const { reloaded } = decideReload(resolveServerOptions(), resolveServerOptions(other, reach));
  const live = Object.entries(SERVE_TABLE).filter(([, { reload }]) => reload === "live");
  expect(live.map(([member]) => member).toSorted()).toEqual(reloaded.changed.toSorted());
  expect([...reloaded.changed, ...reloaded.needRestart].toSorted()).toEqual(
    Object.keys(other).toSorted(),
  );
});
