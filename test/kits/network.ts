/**
 * A network of its own on this machine: each host is a network namespace on one bridge, and every link between two hosts can be
 * cut in either direction. What is cut is silent, as a pulled cable is: nothing ends, and nothing is refused. Linux and root only.
 */

import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";

/** An address that no host has. Frames to it go nowhere. */
const NOWHERE = "02:ff:ff:ff:ff:ff";
/** The name of this process, where the tests themselves run. */
export const OUTSIDE = "outside";

export interface NetworkHost {
  readonly name: string;
  readonly address: string;
  /** What a command begins with that runs on this host. */
  readonly prefix: readonly string[];
}

interface Place extends NetworkHost {
  readonly mac: string;
  /** Words of `ip` that come before a command about this host. */
  readonly scope: readonly string[];
  readonly device: string;
}

/** Why no network can be made here, or undefined. */
export function whyNoNetwork(): string | undefined {
  if (process.platform !== "linux" || process.getuid?.() !== 0) return "it needs Linux and root";
  const name = `hx${process.pid}t`;
  const made = spawnSync("ip", ["netns", "add", name], { encoding: "utf8" });
  if (made.status !== 0) return "network namespaces cannot be made";
  try {
    const link = spawnSync("ip", ["-n", name, "link", "add", "type", "bridge"]);
    return link.status === 0 ? undefined : "bridges cannot be made";
  } finally {
    spawnSync("ip", ["netns", "delete", name]);
  }
}

export class Network {
  readonly #bridge = `hx${process.pid}b`;
  readonly #places = new Map<string, Place>();
  /** 10.64.0.0 to 10.127.255.0: the part of the range that belongs to this process. */
  readonly #subnet = `10.${64 + ((process.pid >> 8) & 63)}.${process.pid & 255}`;
  #isClosed = false;

  constructor(names: readonly string[]) {
    sweep();
    ip("link", "add", this.#bridge, "type", "bridge");
    process.once("exit", this.#onExit);
    ip("address", "add", `${this.#subnet}.254/24`, "dev", this.#bridge);
    ip("link", "set", this.#bridge, "up");
    // Its own address would change with every host.
    const mac = macOf(254);
    ip("link", "set", this.#bridge, "address", mac);
    const outside = { name: OUTSIDE, address: `${this.#subnet}.254`, prefix: [], mac };
    this.#places.set(OUTSIDE, { ...outside, scope: [], device: this.#bridge });
    for (const [at, name] of names.entries()) this.#add(name, at + 1);
    // Known from the beginning, so that no cut is healed by a question for an address.
    for (const from of this.#places.keys())
      for (const to of this.#places.keys()) this.#lead(from, to);
  }

  host(name: string): NetworkHost {
    return this.#place(name);
  }

  /** Nothing from `from` reaches `to` any more. The other direction is as it was. */
  cutOneWay(from: string, to: string): void {
    this.#lead(from, to, NOWHERE);
  }

  cut(one: string, other: string): void {
    this.cutOneWay(one, other);
    this.cutOneWay(other, one);
  }

  /** All links are whole again. */
  mend(): void {
    for (const from of this.#places.keys())
      for (const to of this.#places.keys()) this.#lead(from, to);
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    process.off("exit", this.#onExit);
    for (const { name } of this.#places.values()) {
      if (name !== OUTSIDE) spawnSync("ip", ["netns", "delete", this.#spaceOf(name)]);
    }
    spawnSync("ip", ["link", "delete", this.#bridge]);
  }

  readonly #onExit = (): void => this.close();

  #spaceOf(name: string): string {
    return `hx${process.pid}-${name}`;
  }

  #add(name: string, number: number): void {
    const space = this.#spaceOf(name);
    const outer = `hx${process.pid}v${number}`;
    const [address, mac] = [`${this.#subnet}.${number}`, macOf(number)];
    const scope = ["-n", space];
    ip("netns", "add", space);
    ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space);
    ip("link", "set", outer, "master", this.#bridge, "up");
    ip(...scope, "link", "set", "eth0", "address", mac, "up");
    ip(...scope, "link", "set", "lo", "up");
    ip(...scope, "address", "add", `${address}/24`, "dev", "eth0");
    const prefix = ["ip", "netns", "exec", space];
    this.#places.set(name, { name, address, prefix, mac, scope, device: "eth0" });
  }

  #place(name: string): Place {
    const found = this.#places.get(name);
    if (found === undefined) throw new Error(`there is no host ${name}`);
    return found;
  }

  #lead(from: string, to: string, mac = this.#place(to).mac): void {
    if (from === to) return;
    const { scope, device } = this.#place(from);
    const { address } = this.#place(to);
    const known = ["lladdr", mac, "dev", device, "nud", "permanent"];
    ip(...scope, "neigh", "replace", address, ...known);
  }
}

/** Removes what processes have left that were killed. */
function sweep(): void {
  const isLeft = (pid: string | undefined): boolean => !existsSync(`/proc/${pid}`);
  for (const [name, pid] of ip("netns", "list").matchAll(/^hx(\d+)-\w+/gm)) {
    if (isLeft(pid)) spawnSync("ip", ["netns", "delete", name]);
  }
  for (const [name, pid] of ip("-o", "link", "show", "type", "bridge").matchAll(/\bhx(\d+)b\b/g)) {
    if (isLeft(pid)) spawnSync("ip", ["link", "delete", name]);
  }
}

function macOf(number: number): string {
  const [high, low] = [(process.pid >> 8) & 255, process.pid & 255];
  return ["02", "68", hex(high), hex(low), "00", hex(number)].join(":");
}

function hex(byte: number): string {
  return byte.toString(16).padStart(2, "0");
}

function ip(...words: readonly string[]): string {
  const { status, stdout, stderr } = spawnSync("ip", words, { encoding: "utf8" });
  if (status !== 0) throw new Error(`ip ${words.join(" ")}: ${stderr.trim()}`);
  return stdout;
}
