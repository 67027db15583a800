// PROTOCOL.md §13.6: which pages may call a server, and under which names it answers.
import { describe, expect, test } from "vitest";
import { HapaxError } from "../../base/errors.ts";
import { OptionsCheck } from "../../base/options-check.ts";
import { checkOrigins, checkReach, Doors, type DoorOptions } from "./doors.ts";
import type { Exchange } from "./exchange.ts";

function exchangeOf(
  method: string,
  headers: Readonly<Record<string, string>>,
  authority: string | undefined = "127.0.0.1:4437",
): Exchange {
  return {
    method,
    path: "/v1/stream/orders",
    query: "",
    baseUrl: "http://127.0.0.1:4437",
    authority,
    header: (name) => headers[name],
    hasBody: false,
    body: () => Promise.resolve(new Uint8Array(0)),
    onAbort: () => undefined,
  };
}

function doorsOf(options: Partial<DoorOptions> = {}): Doors {
  return new Doors({ corsOrigins: [], address: "127.0.0.1", publicUrl: undefined, ...options });
}

/** The code of the refusal, or `in`. */
function outcome(doors: Doors, exchange: Exchange): string {
  try {
    doors.check(exchange);
    return "in";
  } catch (error) {
    return (error as { code: string }).code;
  }
}

const METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"];

describe("G37 a page", () => {
  test.each([
    "https://evil.example",
    "http://evil.example:4437",
    "null",
    "http://localhost.evil.example",
    "http://127.0.0.1.evil.example",
    "http://127.0.0.1@evil.example",
    "http://[::2]:4437",
    "http://0.0.0.0:4437",
    "http://192.168.1.2",
    "file://",
    "chrome-extension://localhost",
    "http://localhost:3000/path",
    "http://localhost http://evil.example",
    "",
  ])("of the foreign origin %j may do nothing, by any method", (origin) => {
    for (const method of METHODS) {
      expect(outcome(doorsOf(), exchangeOf(method, { origin }))).toBe("origin_not_allowed");
    }
    expect(doorsOf().allows(origin)).toBe(false);
  });

  test.each([
    "http://localhost:3000",
    "https://localhost",
    "http://app.localhost:5173",
    "http://127.0.0.1:4437",
    "http://127.8.9.10",
    "http://[::1]:8080",
    "HTTP://LOCALHOST:3000",
  ])("of this machine, %j, may do everything", (origin) => {
    for (const method of METHODS) {
      expect(outcome(doorsOf(), exchangeOf(method, { origin }))).toBe("in");
    }
  });

  test("of the server's own host and port may call it where requests need a credential, and nowhere else", () => {
    const own = exchangeOf("POST", { origin: "https://Streams.lan:4437" }, "streams.lan:4437");
    const guarded = doorsOf({ address: undefined, takesOwnOrigin: true });
    expect(outcome(guarded, own)).toBe("in");
    expect(outcome(doorsOf({ address: undefined }), own)).toBe("origin_not_allowed");
    for (const origin of ["https://streams.lan", "https://evil.example:4437", "null", ""]) {
      const other = exchangeOf("POST", { origin }, "streams.lan:4437");
      expect(outcome(guarded, other)).toBe("origin_not_allowed");
    }
  });

  test("of an allowed origin may do everything, and no other with it: scheme, port and case are compared", () => {
    const doors = doorsOf({ corsOrigins: ["https://App.example", "http://b.example:81"] });
    expect(outcome(doors, exchangeOf("PUT", { origin: "https://app.example" }))).toBe("in");
    expect(outcome(doors, exchangeOf("PUT", { origin: "http://b.example:81" }))).toBe("in");
    for (const origin of [
      "http://app.example",
      "https://app.example:444",
      "https://app.example.evil.example",
      "https://evil-app.example",
      "http://b.example",
    ]) {
      expect(outcome(doors, exchangeOf("PUT", { origin }))).toBe("origin_not_allowed");
    }
  });

  test("of the public URL may do everything", () => {
    const doors = doorsOf({ publicUrl: "https://streams.example/base" });
    expect(outcome(doors, exchangeOf("PUT", { origin: "https://streams.example" }))).toBe("in");
    expect(doors.allows("http://streams.example")).toBe(false);
  });

  test("of every origin may do everything where that was asked for", () => {
    const doors = doorsOf({ corsOrigins: "*" });
    for (const origin of ["https://evil.example", "null"]) {
      expect(outcome(doors, exchangeOf("DELETE", { origin }))).toBe("in");
    }
    const silent = { "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors" };
    expect(outcome(doors, exchangeOf("GET", silent))).toBe("in");
  });

  test("of another site gets no picture, script or frame of this server, but a person may follow its link", () => {
    const site = { "sec-fetch-site": "cross-site" };
    for (const [mode, dest] of [
      ["no-cors", "image"],
      ["no-cors", "script"],
      ["no-cors", "empty"],
      ["navigate", "iframe"],
      ["navigate", "object"],
    ] as const) {
      const headers = { ...site, "sec-fetch-mode": mode, "sec-fetch-dest": dest };
      expect(outcome(doorsOf(), exchangeOf("GET", headers))).toBe("origin_not_allowed");
    }
    const visit = { ...site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document" };
    expect(outcome(doorsOf(), exchangeOf("GET", visit))).toBe("in");
    for (const own of ["same-origin", "same-site", "none"]) {
      const headers = { "sec-fetch-site": own, "sec-fetch-mode": "no-cors" };
      expect(outcome(doorsOf(), exchangeOf("GET", headers))).toBe("in");
    }
  });
});

describe("G37 a name", () => {
  test("of another server is refused on loopback, for every method, preflights included", () => {
    for (const authority of [
      "evil.example",
      "evil.example:4437",
      "localhost.evil.example",
      "127.0.0.1.evil.example",
      "192.168.1.2:4437",
      "0.0.0.0:4437",
      "[::2]",
    ]) {
      for (const method of [...METHODS, "OPTIONS"]) {
        expect(outcome(doorsOf(), exchangeOf(method, {}, authority))).toBe("host_not_served");
      }
    }
  });

  test("of this machine, the address, or the public URL is served, with any port", () => {
    const doors = doorsOf({ address: "::1", publicUrl: "https://streams.example:8443" });
    for (const authority of [
      "localhost",
      "localhost.",
      "LOCALHOST:9",
      "app.localhost:4437",
      "127.0.0.1:4437",
      "[::1]:4437",
      "streams.example",
      "Streams.Example:443",
      undefined,
    ]) {
      const exchange = { ...exchangeOf("GET", {}), authority };
      expect([authority, outcome(doors, exchange)]).toEqual([authority, "in"]);
    }
  });

  test("is still refused after one that is served, and the other way round", () => {
    const doors = doorsOf();
    const [own, other] = ["localhost", "evil.example"];
    const seen = [own, other, own, own, other, other].map((name) =>
      outcome(doors, exchangeOf("POST", {}, name)),
    );
    expect(seen).toEqual([
      "in",
      "host_not_served",
      "in",
      "in",
      "host_not_served",
      "host_not_served",
    ]);
  });

  test("is not checked beyond loopback: only a proxy or a platform knows it", () => {
    for (const address of ["0.0.0.0", undefined]) {
      const doors = doorsOf({ address });
      expect(outcome(doors, exchangeOf("GET", {}, "streams.internal"))).toBe("in");
    }
  });
});

describe("options", () => {
  const problemsOf = (run: (check: OptionsCheck) => void): string => {
    const check = new OptionsCheck(HapaxError);
    run(check);
    try {
      check.end();
      return "";
    } catch (error) {
      return (error as Error).message;
    }
  };

  test("an origin that no browser sends is refused", () => {
    const wrong = ["app.example", "https://app.example/", "https://app.example:443", "null"];
    const problems = problemsOf((check) => {
      checkOrigins([...wrong, "https://app.example"], check);
    });
    for (const origin of wrong) expect(problems).toContain(`corsOrigins=${origin} is not`);
    expect(problems.split("; ")).toHaveLength(wrong.length);
    expect(
      problemsOf((check) => {
        checkOrigins("*", check);
      }),
    ).toBe("");
  });

  test.each(["0.0.0.0", "::", "192.168.1.2", "example.org", undefined])(
    "G37 the address %s needs a word that says so",
    (address) => {
      const problems = problemsOf((check) => {
        checkReach(address, check);
      });
      expect(problems).toContain("without authentication every client");
    },
  );

  test.each(["127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST"])(
    "the address %s is this machine",
    (address) => {
      expect(
        problemsOf((check) => {
          checkReach(address, check);
        }),
      ).toBe("");
    },
  );
});
