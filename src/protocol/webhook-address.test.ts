import { isIP } from "node:net";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { isLoopbackAddress } from "./ip-address.ts";
import {
  type AddressClass,
  checkWebhookUrl,
  classifyAddress,
  isResolvedAddressAllowed,
} from "./webhook-address.ts";

const CLASSES: Record<AddressClass, readonly string[]> = {
  public: [
    "1.1.1.1",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "::ffff:8.8.8.8",
    "::ffff:808:808",
    "2001:200::1",
    "2606:4700:4700::1111",
    "2a00:1450:4001:82b::200e",
    "3ffe::1",
  ],
  loopback: [
    "127.0.0.0",
    "127.0.0.1",
    "127.255.255.255",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
  ],
  private: [
    "10.0.0.0",
    "10.255.255.255",
    "100.64.0.0",
    "100.127.255.255",
    "172.16.0.0",
    "172.31.255.255",
    "192.168.0.0",
    "192.168.255.255",
    "::ffff:10.0.0.1",
    "::FFFF:C0A8:0001",
    "fc00::",
    "fd00::1",
    "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
  ],
  "link-local": [
    "169.254.0.0",
    "169.254.169.254",
    "::ffff:a9fe:a9fe",
    "fe80::1",
    "fe80::1%eth0",
    "febf::",
  ],
  multicast: ["224.0.0.1", "239.255.255.255", "ff02::1", "ff00::"],
  reserved: [
    "192.0.0.0",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.0",
    "198.19.255.255",
    "198.51.100.7",
    "203.0.113.9",
    "240.0.0.1",
    "255.255.255.255",
    "::ffff:255.255.255.255",
    "64:ff9b::7f00:1",
    "64:ff9b::8.8.8.8",
    "64:ff9b:1::1",
    "100::1",
    "::127.0.0.1",
    "::7f00:1",
    "::fffe:7f00:1",
    "::ffff:0:127.0.0.1",
    "2001::1",
    "2001:2::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "3fff::1",
    "fec0::1",
    "fe00::1",
    "4000::1",
    "5f00::1",
  ],
  unspecified: ["0.0.0.0", "0.1.2.3", "::", "::ffff:0.0.0.0"],
};

describe("the class of an address", () => {
  for (const [found, addresses] of Object.entries(CLASSES)) {
    test.each(addresses)(`%s is ${found}`, (address) => {
      expect(classifyAddress(address)).toBe(found);
    });
  }

  test.each([
    "168.63.129.16",
    "100.100.100.200",
    "fd00:ec2::254",
    "fd20:ce::254",
    "::ffff:a83f:8110",
  ])("the metadata service at %s is refused even where private networks are allowed", (address) => {
    expect(classifyAddress(address)).toBe("reserved");
    expect(
      isResolvedAddressAllowed(address, { isDevelopment: false }, { allowPrivate: true }),
    ).toBe(false);
  });

  test.each([
    "",
    "localhost",
    "1.1.1",
    "1.1.1.1.1",
    "01.1.1.1",
    "1.1.1.256",
    "1.1.1.1 ",
    "0x7f.0.0.1",
    "16843009",
    ":",
    ":::",
    "1::2::3",
    "2606:4700",
    "2606:4700:1:2:3:4:5:6:7",
    "2606::1:2:3:4:5:6:7",
    "2606:4700::12345",
    "2606:1.1.1.1::1",
    "1.1.1.1::",
    "2606::g",
    "[2606::1]",
  ])("the unreadable text %j is never public", (text) => {
    expect(classifyAddress(text)).toBe("reserved");
  });

  test("every spelling of an IPv6 address has the class of the URL parser's spelling", () => {
    fc.assert(
      fc.property(fc.ipV6(), (address) => {
        const normalised = new URL(`http://[${address}]/`).hostname.slice(1, -1);
        expect(isIP(normalised)).toBe(6);
        expect(classifyAddress(address)).toBe(classifyAddress(normalised));
      }),
    );
  });

  test("a mapped address always has the class of the IPv4 address in it", () => {
    fc.assert(
      fc.property(fc.ipV4(), (address) => {
        expect(classifyAddress(`::ffff:${address}`)).toBe(classifyAddress(address));
        expect(classifyAddress(`64:ff9b::${address}`)).toBe("reserved");
      }),
    );
  });
});

describe("allowed URLs", () => {
  test("an https URL on a public name comes back in the parts that a request needs", () => {
    expect(checkWebhookUrl("https://Hooks.Example.COM./a%20b?c=d")).toEqual({
      kind: "allowed",
      scheme: "https",
      hostname: "hooks.example.com",
      isLiteralAddress: false,
      port: 443,
      target: "/a%20b?c=d",
      isDevelopment: false,
    });
    expect(checkWebhookUrl("https://[2606:4700:4700::1111]:8443")).toMatchObject({
      hostname: "2606:4700:4700::1111",
      isLiteralAddress: true,
      port: 8443,
      target: "/",
      isDevelopment: false,
    });
  });

  test.each([
    ["https://hooks.example.com/", {}],
    ["https://hooks.example.com:443/", {}],
    ["https://hooks.example.com:1024/", {}],
    ["https://1.1.1.1/", {}],
    ["https://10.0.0.1/", { allowPrivate: true }],
    ["https://worker.svc.cluster.local/", { allowPrivate: true }],
    ["https://worker/", { allowPrivate: true }],
  ])("%s is allowed with %j", (url, options) => {
    expect(checkWebhookUrl(url, options)).toMatchObject({ kind: "allowed", isDevelopment: false });
  });

  test.each([
    "http://localhost:3000/hook",
    "http://LOCALHOST/",
    "http://localhost./",
    "https://localhost:22/",
    "http://127.0.0.1:80/",
    "http://127.8.9.10/",
    "http://2130706433/",
    "http://0x7f.1/",
    "http://0177.0.0.1/",
    "http://%31%32%37.0.0.1/",
    "http://①②⑦.0.0.1/",
  ])("%s is the machine itself: for development only", (url) => {
    expect(checkWebhookUrl(url)).toMatchObject({ kind: "allowed", isDevelopment: true });
    expect(checkWebhookUrl(url, { allowLoopback: false })).toMatchObject({ kind: "rejected" });
  });
});

describe("rejected URLs", () => {
  test.each([
    "http://hooks.example.com/",
    "http://hooks.example.com:443/",
    "http://hooks.example.com:8080/",
    "http://1.1.1.1:8080/",
    "http://10.0.0.1:8080/",
    "http://worker:8080/",
    "http://[::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://localhost.example.com/",
    "http://127.0.0.1.example.com/",
    "http://a.localhost:8080/",
    "https://a.localhost/",
    "ftp://hooks.example.com/",
    "file:///etc/passwd",
    "data:text/plain,x",
    "ws://localhost/",
  ])("%s is neither https to another machine nor a development address", (url) => {
    expect(checkWebhookUrl(url)).toMatchObject({ kind: "rejected" });
    expect(checkWebhookUrl(url, { allowPrivate: true })).toMatchObject({ kind: "rejected" });
  });

  test.each([
    "http://10.0.0.1/hook",
    "https://10.0.0.1/",
    "https://167772161/",
    "https://0xa.1/",
    "https://012.0.0.1/",
    "https://192.168.1.1/",
    "https://0/",
    "https://0.0.0.0/",
    "https://255.255.255.255/",
    "https://169.254.169.254/latest/meta-data/",
    "https://[::]/",
    "https://[::1]/",
    "https://[::ffff:10.0.0.1]/",
    "https://[::ffff:a9fe:a9fe]/",
    "https://[fd00::1]/",
    "https://[fe80::1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[2002:7f00:1::]/",
  ])("%s does not name the public internet", (url) => {
    expect(checkWebhookUrl(url)).toMatchObject({ kind: "rejected" });
  });

  test.each([
    "https://metadata/",
    "https://metadata.google.internal/",
    "https://METADATA.google.internal./",
    "https://instance-data/",
    "https://169.254.169.254/",
    "https://[fd00:ec2::254]/",
  ])("%s is refused even where private networks are allowed", (url) => {
    expect(checkWebhookUrl(url, { allowPrivate: true })).toMatchObject({ kind: "rejected" });
  });

  test.each([
    "https://db.internal/",
    "https://internal/",
    "https://printer.local/",
    "https://printer.local./",
    "https://nas.home.arpa/",
    "https://redis/",
    "https://a..example.com/",
    "https://example.com../",
  ])("%s is not a name of the public internet", (url) => {
    expect(checkWebhookUrl(url)).toMatchObject({ kind: "rejected" });
  });

  test.each([
    "https://user@hooks.example.com/",
    "https://user:secret@hooks.example.com/",
    "https://:secret@hooks.example.com/",
    "https://hooks.example.com/#part",
    "https://hooks.example.com/#",
    "https://hooks.example.com:22/",
    "https://hooks.example.com:80/",
    "https://hooks.example.com:1023/",
    "https://hooks.example.com:0/",
    "https://hooks.example.com:65536/",
    "https://hooks.exa\tmple.com/",
    " https://hooks.example.com/",
    "https:\\\\hooks.example.com\\",
    "https://hooks.example.com/\u0000",
    "https://",
    "hooks.example.com",
    "",
    `https://hooks.example.com/${"a".repeat(4096)}`,
  ])("%j has a part that no webhook needs", (url) => {
    expect(checkWebhookUrl(url)).toMatchObject({ kind: "rejected" });
  });

  test("for every text, an allowed literal address is public or loopback", () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.ipV4Extended(),
          fc.ipV6().map((ip) => `[${ip}]`),
        ),
        (host) => {
          const check = checkWebhookUrl(`https://${host}/`);
          if (check.kind === "rejected") return;
          expect(["public", "loopback"]).toContain(classifyAddress(check.hostname));
          expect(check.isDevelopment).toBe(classifyAddress(check.hostname) === "loopback");
        },
      ),
    );
  });
});

describe("addresses that a name resolved to", () => {
  test.each([
    ["1.1.1.1", false, true],
    ["127.0.0.1", false, false],
    ["::1", false, false],
    ["10.0.0.1", false, false],
    ["127.0.0.1", true, true],
    ["::1", true, true],
    ["1.1.1.1", true, false],
    ["10.0.0.1", true, false],
  ])("%s for a development host (%s) is allowed: %s", (address, isDevelopment, isAllowed) => {
    expect(isResolvedAddressAllowed(address, { isDevelopment })).toBe(isAllowed);
  });

  test("a private address is allowed by its own option only, loopback never for other hosts", () => {
    const options = { allowPrivate: true };
    expect(isResolvedAddressAllowed("10.0.0.1", { isDevelopment: false }, options)).toBe(true);
    expect(isResolvedAddressAllowed("127.0.0.1", { isDevelopment: false }, options)).toBe(false);
    expect(isResolvedAddressAllowed("169.254.1.1", { isDevelopment: false }, options)).toBe(false);
    expect(
      isResolvedAddressAllowed("127.0.0.1", { isDevelopment: true }, { allowLoopback: false }),
    ).toBe(false);
  });
});

test("an address of this machine is what the table of networks says it is", () => {
  const part = fc.constantFrom("0", "1", "127", "128", "ffff", "7f00", "::", "255", "%eth0", "");
  const joined = fc.tuple(fc.array(part, { maxLength: 9 }), fc.constantFrom(".", ":"));
  const known = fc.constantFrom(
    "127.0.0.1",
    "127.255.255.255",
    "126.255.255.255",
    "128.0.0.1",
    "::1",
    "::1%lo",
    "::2",
    "1::1",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "::ffff:128.0.0.1",
    "::127.0.0.1",
    "7f00::1",
    "localhost",
    "",
  );
  const any = fc.oneof(
    known,
    joined.map(([parts, by]) => parts.join(by)),
    fc.ipV4(),
    fc.ipV6(),
  );
  fc.assert(
    fc.property(any, (text) => {
      expect(isLoopbackAddress(text)).toBe(classifyAddress(text) === "loopback");
    }),
    { numRuns: 2_000 },
  );
});
