/**
 * Decides which addresses a webhook may go to. Pure: it resolves no name. The courier asks again right before it
 * connects, with the addresses that the name resolved to.
 *
 *   - https only. http, and any port, for development only: `localhost` and 127.0.0.0/8.
 *   - Only addresses of the public internet; a text that is no address is never public.
 *   - An IPv4 address inside an IPv6 one is judged as the IPv4 address, or refused altogether.
 *   - The judgement is about the host after the URL parser normalised it, never about the text.
 *   - Cloud metadata services are refused by name and by address, under any options.
 *
 * PROTOCOL.md §11.4. Ranges: IANA special-purpose registries for IPv4 and IPv6.
 */

import { bytesOfAddress } from "./ip-address.ts";
import { LIMITS } from "./limits.ts";

export type AddressClass =
  | "public"
  | "loopback"
  | "private"
  | "link-local"
  | "multicast"
  | "reserved"
  | "unspecified";

export interface WebhookAddressOptions {
  /** Whether `localhost` and 127.0.0.0/8 are allowed, as the protocol says. Default true. */
  readonly allowLoopback?: boolean;
  /** Whether https to private networks and their names is allowed. Default false. */
  readonly allowPrivate?: boolean;
}

export interface AllowedWebhookUrl {
  readonly kind: "allowed";
  readonly scheme: "http" | "https";
  /** Normalised. A literal IPv6 address has no brackets. */
  readonly hostname: string;
  readonly isLiteralAddress: boolean;
  readonly port: number;
  /** Path and query, for the request line. */
  readonly target: string;
  /** The host is this machine. Then only loopback addresses are allowed, and http is too. */
  readonly isDevelopment: boolean;
}

export type WebhookUrlCheck =
  | AllowedWebhookUrl
  | { readonly kind: "rejected"; readonly reason: string };

/** Checks a webhook URL as far as that is possible without resolving its name. */
export function checkWebhookUrl(url: string, options: WebhookAddressOptions = {}): WebhookUrlCheck {
  if (url.length > LIMITS.targetBytesMax) return rejected("the URL is too long");
  // The URL parser drops tabs and line breaks and turns backslashes, so the meaning is unclear.
  if (/[\s\\\p{Cc}]/u.test(url)) return rejected("the URL contains blanks or control characters");
  if (!URL.canParse(url)) return rejected("the URL cannot be read");
  const parsed = new URL(url);
  const isHttps = parsed.protocol === "https:";
  if (!isHttps && parsed.protocol !== "http:") return rejected("only https is allowed");
  if (parsed.username !== "" || parsed.password !== "") {
    return rejected("credentials in the URL are not allowed");
  }
  if (url.includes("#")) return rejected("a fragment is not allowed");

  const hostname = plainHostname(parsed.hostname);
  if (hostname === "") return rejected("the URL names no host");
  const isLiteralAddress = bytesOfAddress(hostname) !== undefined;
  const isDevelopment = isDevelopmentHost(hostname);
  const port = parsed.port === "" ? (isHttps ? 443 : 80) : Number(parsed.port);
  const reason = isDevelopment
    ? developmentFault(options)
    : publicFault(hostname, { isHttps, isLiteralAddress, port }, options);
  if (reason !== undefined) return rejected(reason);
  return {
    kind: "allowed",
    scheme: isHttps ? "https" : "http",
    hostname,
    isLiteralAddress,
    port,
    target: `${parsed.pathname}${parsed.search}`,
    isDevelopment,
  };
}

/**
 * Checks an address that the name of an allowed URL resolved to. A development host must be loopback, and no other
 * host may be: else a public name could point at this machine.
 */
export function isResolvedAddressAllowed(
  address: string,
  url: { readonly isDevelopment: boolean },
  options: WebhookAddressOptions = {},
): boolean {
  const found = classifyAddress(address);
  if (url.isDevelopment) return found === "loopback" && options.allowLoopback !== false;
  return found === "public" || (found === "private" && options.allowPrivate === true);
}

/** Returns the kind of network of an IPv4 or IPv6 address. Unreadable text is `reserved`. */
export function classifyAddress(ip: string): AddressClass {
  // A zone names an interface of this machine and does not change the kind of address.
  const bytes = bytesOfAddress(ip.split("%", 1)[0] ?? "");
  if (bytes === undefined) return "reserved";
  if (bytes.length === 4) return firstMatch(bytes, IPV4_RANGES) ?? "public";
  // Operating systems connect a mapped address over IPv4.
  if (hasPrefix(bytes, MAPPED)) return classifyAddress(bytes.slice(12).join("."));
  return firstMatch(bytes, IPV6_RANGES) ?? "reserved";
}

function rejected(reason: string): WebhookUrlCheck {
  return { kind: "rejected", reason };
}

/** Returns the host without brackets and without the root's dot, which resolvers ignore. */
function plainHostname(hostname: string): string {
  return hostname.replace(/^\[|\]$/g, "").replace(/\.$/, "");
}

/** Whether the host is `localhost` or in 127.0.0.0/8, as the protocol says; not ::1, not names under localhost. */
function isDevelopmentHost(hostname: string): boolean {
  if (hostname === "localhost") return true;
  return !hostname.includes(":") && classifyAddress(hostname) === "loopback";
}

function developmentFault(options: WebhookAddressOptions): string | undefined {
  return options.allowLoopback === false ? "loopback addresses are not allowed" : undefined;
}

function publicFault(
  hostname: string,
  url: { isHttps: boolean; isLiteralAddress: boolean; port: number },
  options: WebhookAddressOptions,
): string | undefined {
  if (url.isLiteralAddress) {
    if (!isResolvedAddressAllowed(hostname, { isDevelopment: false }, options)) {
      return `a ${classifyAddress(hostname)} address is not allowed`;
    }
  } else {
    const reason = nameFault(hostname, options);
    if (reason !== undefined) return reason;
  }
  if (!url.isHttps) return "only https is allowed";
  // Ports below 1024 belong to mail, file and login services, which must not be reached through this server.
  if (url.port !== 443 && url.port < 1024) return `port ${url.port} is not allowed`;
  return undefined;
}

function nameFault(hostname: string, options: WebhookAddressOptions): string | undefined {
  // A name has no two dots in a row. Some resolvers would still drop the last ones.
  if (hostname.startsWith(".") || hostname.endsWith(".") || hostname.includes("..")) {
    return "the host name cannot be read";
  }
  if (METADATA_NAMES.has(hostname)) return "a metadata service is not allowed";
  const isUnder = (suffix: string): boolean =>
    hostname === suffix || hostname.endsWith(`.${suffix}`);
  if (isUnder("localhost")) return "only localhost itself is allowed for development";
  if (options.allowPrivate === true) return undefined;
  if (!hostname.includes(".")) return "a host name without a domain is not allowed";
  if (PRIVATE_SUFFIXES.some(isUnder)) return "a name of a private network is not allowed";
  return undefined;
}

const METADATA_NAMES: ReadonlySet<string> = new Set([
  "metadata",
  "metadata.google.internal",
  "metadata.goog",
  "metadata.azure.com",
  "metadata.azure.internal",
  "metadata.tencentyun.com",
  "metadata.platformequinix.com",
  "instance-data",
  "instance-data.ec2.internal",
  "rancher-metadata",
]);

const PRIVATE_SUFFIXES = ["internal", "local", "localdomain", "home.arpa"] as const;

interface Prefix {
  readonly bytes: readonly number[];
  readonly bits: number;
}
type Range = Prefix & { readonly found: AddressClass };

const MAPPED = prefix("::ffff:0:0/96");

/** The first match counts. An address without a match is public. */
const IPV4_RANGES: readonly Range[] = [
  range("168.63.129.16/32", "reserved"), // Azure's metadata service, on a public address
  range("100.100.100.200/32", "reserved"), // Alibaba's metadata service
  range("0.0.0.0/8", "unspecified"), // connecting to 0.0.0.0 reaches the machine itself
  range("10.0.0.0/8", "private"),
  range("100.64.0.0/10", "private"), // carrier-grade NAT
  range("127.0.0.0/8", "loopback"),
  range("169.254.0.0/16", "link-local"), // most metadata services
  range("172.16.0.0/12", "private"),
  range("192.0.0.0/24", "reserved"), // protocol assignments; Oracle's metadata service
  range("192.0.2.0/24", "reserved"), // documentation
  range("192.88.99.0/24", "reserved"), // 6to4 relays
  range("192.168.0.0/16", "private"),
  range("198.18.0.0/15", "reserved"), // benchmarks
  range("198.51.100.0/24", "reserved"), // documentation
  range("203.0.113.0/24", "reserved"), // documentation
  range("224.0.0.0/4", "multicast"),
  range("240.0.0.0/4", "reserved"), // includes the broadcast address
];

/** The first match counts. An address without a match is reserved: only 2000::/3 is given out. */
const IPV6_RANGES: readonly Range[] = [
  range("::/128", "unspecified"),
  range("::1/128", "loopback"),
  range("fd00:ec2::254/128", "reserved"), // Amazon's metadata service
  range("fd20:ce::254/128", "reserved"), // Google's metadata service
  range("fc00::/7", "private"),
  range("fe80::/10", "link-local"),
  range("ff00::/8", "multicast"),
  // These carry an IPv4 address that a gateway, not this machine, would unpack: 64:ff9b::/96 and
  // ::/96 lie outside 2000::/3, Teredo is part of 2001::/23, 6to4 is 2002::/16.
  range("2001::/23", "reserved"),
  range("2002::/16", "reserved"),
  range("2001:db8::/32", "reserved"), // documentation
  range("3fff::/20", "reserved"), // documentation
  range("2000::/3", "public"),
];

function range(text: string, found: AddressClass): Range {
  return { ...prefix(text), found };
}

function prefix(text: string): Prefix {
  const [address = "", bits = ""] = text.split("/");
  return { bytes: bytesOfAddress(address) ?? [], bits: Number(bits) };
}

function firstMatch(bytes: readonly number[], ranges: readonly Range[]): AddressClass | undefined {
  return ranges.find((candidate) => hasPrefix(bytes, candidate))?.found;
}

function hasPrefix(bytes: readonly number[], wanted: Prefix): boolean {
  for (let bit = 0; bit < wanted.bits; bit += 8) {
    const mask = 0xff & (0xff << Math.max(0, 8 - (wanted.bits - bit)));
    const difference = (bytes[bit / 8] ?? 0) ^ (wanted.bytes[bit / 8] ?? 0);
    if ((difference & mask) !== 0) return false;
  }
  return true;
}
