import { expect, test } from "vitest";
import { createVirtualClock } from "../../../testing/virtual-clock.ts";
import { keepsPromise, requireSettings } from "./engine-checks.ts";
import { HostSessions, hostUrls, withPatience } from "./hosts.ts";
import { type Session, StatementRefused } from "./session.ts";

test("a URL with several hosts is one URL for each", () => {
  expect(hostUrls("postgres://u:p@a,b:5433/name?x=1")).toEqual([
    "postgres://u:p@a/name?x=1",
    "postgres://u:p@b:5433/name?x=1",
  ]);
  expect(hostUrls("postgresql:///name?host=/tmp")).toEqual(["postgresql:///name?host=/tmp"]);
  expect(() => hostUrls("http://a/b")).toThrow(
    expect.objectContaining({ code: "invalid_options" }),
  );
});

interface TestHost extends Session {
  isStandby: boolean;
  isAway: boolean;
  /** It answers nothing. */
  isSilent: boolean;
  timeline: string | undefined;
}

/** A host that can change its part. */
function host(name: string): TestHost {
  return {
    isStandby: true,
    isAway: false,
    isSilent: false,
    timeline: undefined,
    async run(text) {
      if (this.isAway) throw new Error(`${name} is away`);
      if (this.isSilent) return new Promise(() => undefined);
      if (text.includes("pg_is_in_recovery")) {
        const { isStandby, timeline } = this;
        if (text.includes("pg_current_wal_lsn") && timeline === undefined)
          throw new StatementRefused("0A000", "not supported");
        return { rows: [{ is_standby: isStandby, timeline }], isSure: true };
      }
      if (this.isStandby) throw new StatementRefused("25006", "read-only");
      return { rows: [{ name }], isSure: true };
    },
    close: async () => undefined,
  };
}

test("statements go to the primary, and to the new one after a failover", async () => {
  const [a, b] = [host("a"), host("b")];
  const hosts = new HostSessions([a, b]);
  await expect(hosts.run("x")).rejects.toThrow("none of the hosts is a primary");
  b.isStandby = false;
  expect((await hosts.run("x")).rows).toEqual([{ name: "b" }]);
  [a.isStandby, b.isStandby] = [false, true];
  await expect(hosts.run("x")).rejects.toThrow("read-only");
  expect((await hosts.run("x")).rows).toEqual([{ name: "a" }]);
  [a.isAway, b.isStandby] = [true, false];
  await expect(hosts.run("x")).rejects.toThrow("away");
  expect((await hosts.run("x")).rows).toEqual([{ name: "b" }]);
});

test("a host that is frozen does not keep the primary from being found again", async () => {
  const clock = createVirtualClock();
  const [a, frozen] = [host("a"), host("frozen")];
  frozen.run = () => new Promise(() => undefined);
  a.isAway = true;
  const hosts = new HostSessions([a, frozen], clock);
  const lost = hosts.run("x").then(String, String);
  await new Promise((resolve) => setImmediate(resolve));
  clock.advance(2000);
  expect(await lost).toContain("no primary has answered");
  [a.isAway, a.isStandby] = [false, false];
  expect((await hosts.run("x")).rows).toEqual([{ name: "a" }]);
});

test("a primary that does not answer is left when another host has taken its place, and not before", async () => {
  const clock = createVirtualClock();
  const [a, b] = [host("a"), host("b")];
  [a.isStandby, a.timeline] = [false, "00000001"];
  const hosts = new HostSessions([a, b], clock);
  await hosts.run("x");
  a.isSilent = true;
  let outcome = "";
  void hosts
    .run("x")
    .then(String, String)
    .then((text) => (outcome = text));
  const silence = async (): Promise<void> => {
    clock.advance(2000);
    for (let turns = 0; turns < 3; turns += 1)
      await new Promise((resolve) => setImmediate(resolve));
  };
  await silence();
  await silence();
  // It may be waiting for its standby, and no other host is the primary.
  expect(outcome).toBe("");
  [b.isStandby, b.timeline] = [false, "00000002"];
  await silence();
  expect(outcome).toContain("another host has taken its place");
  expect((await hosts.run("x")).rows).toEqual([{ name: "b" }]);
  expect(clock.pending).toBe(0);
});

test("G81 a host that was replaced and does not know it is not taken for the primary again", async () => {
  const [a, b] = [host("a"), host("b")];
  [a.isStandby, a.timeline] = [false, "00000001"];
  const hosts = new HostSessions([a, b]);
  expect((await hosts.run("x")).rows).toEqual([{ name: "a" }]);
  a.isAway = true;
  [b.isStandby, b.timeline] = [false, "0000000A"];
  await expect(hosts.run("x")).rejects.toThrow("away");
  expect((await hosts.run("x")).rows).toEqual([{ name: "b" }]);
  [a.isAway, b.isAway] = [false, true];
  await expect(hosts.run("x")).rejects.toThrow("away");
  await expect(hosts.run("x")).rejects.toThrow("timeline=00000001, latest=0000000A");
  // After a promotion by hand the store itself finds what is missing there.
  a.timeline = "0000000B";
  expect((await hosts.run("x")).rows).toEqual([{ name: "a" }]);
});

test("a statement without an answer counts as lost, later each time, until one is answered", async () => {
  const clock = createVirtualClock();
  let answers = false;
  const silent: Session = {
    run: () =>
      answers ? Promise.resolve({ rows: [], isSure: true }) : new Promise(() => undefined),
    close: async () => undefined,
  };
  const session = withPatience(silent, clock, 1000);
  for (const waitMs of [1000, 2000, 4000]) {
    const lost = session.run("x").then(String, String);
    clock.advance(waitMs - 1);
    expect(clock.pending).toBe(1);
    clock.advance(1);
    expect(await lost).toContain(`${waitMs} ms`);
  }
  answers = true;
  await session.run("x");
  answers = false;
  const again = session.run("x").then(String, String);
  clock.advance(1000);
  expect(await again).toContain("1000 ms");
});

const GOOD = {
  version: 140_000,
  isInRecovery: false,
  isReadOnly: false,
  fsync: "on",
  fullPageWrites: "on",
  level: "on",
  standbys: "a",
};

test("every setting that is too weak is named, and what was asked for decides", () => {
  const warnings: string[] = [];
  const check = (found: Partial<typeof GOOD>, needs = {}): string => {
    try {
      requireSettings({ ...GOOD, ...found }, needs, (warning) => warnings.push(warning));
      return "";
    } catch (error) {
      return String(error);
    }
  };
  expect(check({})).toBe("");
  expect(check({ version: 130_009 })).toContain("version 13");
  expect(check({ isInRecovery: true })).toContain("standby");
  expect(check({ isReadOnly: true })).toContain("read-only");
  expect(check({ fsync: "off" })).toContain("fsync is off");
  expect(check({ fullPageWrites: "off" })).toContain("full_page_writes");
  expect(check({ level: "local" })).toContain("synchronous_commit is local");
  expect(check({ level: "remote_write" })).toContain("synchronous_commit");
  expect(check({ standbys: " " })).toContain("synchronous_standby_names");
  expect(check({ standbys: "" }, { replication: "storage" })).toBe("");
  expect(check({ level: "local", standbys: "" }, { durability: "fsync" })).toBe("");
  expect(check({ level: "off" }, { durability: "fsync" })).toContain("synchronous_commit is off");
  expect(warnings.join()).toContain("a failover may lose");
  expect(check({ fsync: "off", level: "off", standbys: "" }, { durability: "os" })).toBe("");
  expect(warnings.join()).toContain("fsync is off");
});

test("a commit counts only under settings that keep the promise at that moment", () => {
  expect(keepsPromise({}, "on", "a")).toBe(true);
  expect(keepsPromise({}, "on", "")).toBe(false);
  expect(keepsPromise({}, "local", "a")).toBe(false);
  expect(keepsPromise({ replication: "storage" }, "on", "")).toBe(true);
  expect(keepsPromise({ durability: "fsync" }, "off", "a")).toBe(false);
  expect(keepsPromise({ durability: "os" }, "off", "")).toBe(true);
});
