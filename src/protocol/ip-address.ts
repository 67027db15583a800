/** Addresses of IPv4 and IPv6 as bytes. Pure: no name is resolved. */

/** Whether a text is an address of this machine, also one of IPv4 inside of IPv6. */
export function isLoopbackAddress(ip: string): boolean {
  // A zone names an interface of this machine and does not change the kind of address.
  const bytes = bytesOfAddress(ip.split("%", 1)[0] ?? "");
  if (bytes === undefined) return false;
  const text = bytes.join(".");
  return /^(0\.){10}255\.255\.127\.|^127\.(?=\d+\.\d+\.\d+$)|^(0\.){15}1$/.test(text);
}

/** Returns 4 or 16 bytes. Undefined for anything but a plain, fully written address. */
export function bytesOfAddress(address: string): readonly number[] | undefined {
  return address.includes(":") ? ipv6Bytes(address) : ipv4Bytes(address);
}

/** Reads dotted decimal only: other spellings are ambiguous, and the URL parser has rewritten them. */
function ipv4Bytes(address: string): readonly number[] | undefined {
  const parts = address.split(".");
  if (parts.length !== 4) return undefined;
  const bytes = parts.map((part) => (/^(0|[1-9]\d{0,2})$/.test(part) ? Number(part) : 256));
  return bytes.every((byte) => byte <= 255) ? bytes : undefined;
}

function ipv6Bytes(address: string): readonly number[] | undefined {
  const halves = address.split("::");
  if (halves.length > 2) return undefined;
  const head = ipv6Part(halves[0] ?? "", halves.length === 1);
  const tail = ipv6Part(halves[1] ?? "", true);
  if (head === undefined || tail === undefined) return undefined;
  const missing = 16 - head.length - tail.length;
  // A double colon stands for at least one group.
  if (halves.length === 1 ? missing !== 0 : missing < 2) return undefined;
  return [...head, ...Array<number>(missing).fill(0), ...tail];
}

/** Reads the groups on one side of the double colon. Only the very last may be dotted decimal. */
function ipv6Part(text: string, mayEndDotted: boolean): readonly number[] | undefined {
  if (text === "") return [];
  const bytes: number[] = [];
  const groups = text.split(":");
  for (const [index, group] of groups.entries()) {
    const isLast = index === groups.length - 1;
    if (isLast && mayEndDotted && group.includes(".")) {
      const dotted = ipv4Bytes(group);
      if (dotted === undefined) return undefined;
      bytes.push(...dotted);
    } else {
      if (!/^[0-9a-f]{1,4}$/i.test(group)) return undefined;
      const value = Number.parseInt(group, 16);
      bytes.push(value >> 8, value & 0xff);
    }
  }
  return bytes;
}
