/** Long random histories of a group, with the invariants checked after each step, and the state in which they end. */

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  ASKED_MAX,
  decideGroupClaim,
  decideCommit,
  decideGroup,
  decideGroupReset,
  decideJoin,
  decideLeave,
  decideGroupRelease,
  GRANTED_MAX,
  handOverOf,
  shareOut,
} from "./group-decide.ts";
import { imageOfGroups, restoreGroups } from "./group-image.ts";
import type { GroupState, GroupChange, GroupSettings, Member } from "./group-state.ts";
import { createGroupBook } from "./group.ts";
import { assert } from "../../base/assert.ts";
import type { Offset, StreamId, StreamName, TimeMs } from "./types.ts";
import { applyChange, createWorld, type World } from "./world.ts";
import { RUN } from "../../testing/commands.ts";

const GROUP = "billing";
const LEASE_MS = 1000;
/** Every offset is a boundary. */
const ANY = (): boolean => true;
const SETTINGS: GroupSettings = {
  pattern: "/in/*",
  streams: ["/named" as StreamName],
  start: { kind: "beginning" },
  leaseMs: LEASE_MS,
};

interface Lease {
  readonly member: string;
  readonly stream: StreamName;
  readonly token: number;
}

class History {
  readonly world: World = createWorld();
  readonly members: string[] = [];
  /** Every lease that was ever given. */
  readonly leases: Lease[] = [];
  atMs = 1_000_000 as TimeMs;
  #streams = 0;

  constructor(settings = SETTINGS, before = 0) {
    for (let index = 0; index < before; index += 1) this.create(`/in/${index}` as StreamName);
    this.found(settings);
  }

  found(settings = SETTINGS): void {
    const decision = decideGroup(this.world, GROUP, settings, this.atMs, ANY);
    if (decision.kind === "created") this.apply(decision.change);
  }

  get group(): GroupState {
    const group = this.world.groups.byId.get(GROUP);
    if (group === undefined) throw new Error("there is no group");
    return group;
  }

  apply(change: GroupChange): void {
    applyChange(this.world, change);
    if (change.kind === "group_claimed") {
      for (const [stream, token] of change.granted) {
        assert(token > (this.leases.at(-1)?.token ?? 0), "a token grows with every lease");
        this.leases.push({ member: change.member, stream, token });
      }
    }
    this.check();
  }

  /** Checks that the sets beside the cursors agree with the cursors. */
  check(): void {
    const { cursors, members, free, left, asked, openCount } = this.group;
    let open = 0;
    for (const cursor of cursors.values()) {
      const { stream, isFinished } = cursor;
      if (!isFinished) open += 1;
      const isLeft = [...left.values()].some((streams) => streams.has(stream));
      // A member that has left holds nothing, and its streams are free.
      const holder = isLeft ? undefined : cursor.holder;
      assert(!isLeft || !members.has(cursor.holder ?? ""), "left");
      assert((free.has(stream) || isLeft) === (holder === undefined && !isFinished), "free");
      assert(holder === undefined || !isFinished, "finished");
      assert(asked.has(stream) === (cursor.askedUntilMs !== undefined), "asked");
      for (const member of members.values()) {
        assert(member.holds.has(stream) === (holder === member.id), "holds");
      }
    }
    assert(open === openCount, "open");
    assert(free.size <= cursors.size, "stale");
  }

  create(name: StreamName): void {
    if (this.world.streams.has(name)) return;
    this.#streams += 1;
    applyChange(this.world, {
      kind: "created",
      atMs: this.atMs,
      stream: this.#streams as StreamId,
      run: RUN,
      name,
      contentType: "text/plain",
      expiry: { kind: "never" },
      fork: undefined,
      keys: undefined,
    });
  }

  append(name: StreamName, bytes: number, closes = false): void {
    const state = this.world.streams.get(name);
    if (state === undefined || state.isClosed) return;
    const bare = { producer: undefined, streamSeq: undefined, key: undefined };
    const data = new Uint8Array(bytes);
    const { atMs } = this;
    applyChange(this.world, { kind: "appended", atMs, stream: state.id, data, closes, ...bare });
  }

  remove(name: StreamName): void {
    const state = this.world.streams.get(name);
    if (state === undefined) return;
    applyChange(this.world, { kind: "removed", atMs: this.atMs, stream: state.id });
    this.check();
  }

  join(): string {
    const change = decideJoin(
      this.world.groups,
      this.group,
      "worker",
      String(this.members.length),
      this.atMs,
    );
    this.apply(change);
    this.members.push(change.member);
    return change.member;
  }

  /** Returns the leases of the member. Undefined if the member is lost. */
  claim(member: string, max = 1_000_000): readonly Lease[] | undefined {
    const decision = decideGroupClaim(this.world.groups, this.group, member, max, this.atMs);
    if (decision.kind === "member_lost") return undefined;
    this.apply(decision.change);
    return this.held(member);
  }

  held(member: string): readonly Lease[] {
    const holds = [...(this.group.members.get(member)?.holds ?? [])];
    return holds.map((stream) => {
      return { member, stream, token: this.group.cursors.get(stream)?.token ?? 0 };
    });
  }

  commit({ member, stream, token }: Lease, offset: number | undefined): string {
    const commits = [{ stream, token, offset: offset as Offset | undefined }];
    const { streams } = this.world;
    const decision = decideCommit(this.group, member, commits, streams, this.atMs, ANY);
    if (decision.kind === "committed") this.apply(decision.change);
    return decision.kind;
  }

  release(lease: Lease): number {
    const changes = decideGroupRelease(this.group, lease.member, [lease], this.atMs);
    for (const change of changes) this.apply(change);
    return changes.length;
  }

  leave(member: string): void {
    for (const change of decideLeave(this.group, member, this.atMs)) this.apply(change);
  }

  /** Runs one round in which the members do what they are asked. */
  round(members: readonly string[]): void {
    for (const member of members) {
      this.claim(member);
      for (const stream of handOverOf(this.group, member)) {
        for (const lease of this.held(member)) if (lease.stream === stream) this.release(lease);
      }
    }
  }
}

const NAMES = ["/in/0", "/in/1", "/in/2", "/in/3", "/in/4", "/named", "/other"] as StreamName[];

type Act = (history: History, pick: (count: number) => number) => void;

const ACTS: readonly Act[] = [
  (history) => void history.join(),
  (history, pick) =>
    void history.claim(history.members[pick(history.members.length)] ?? "stranger"),
  (history, pick) =>
    void history.claim(history.members[pick(history.members.length)] ?? "stranger", 2),
  (history, pick) => {
    history.leave(history.members[pick(history.members.length)] ?? "stranger");
  },
  (history, pick) => {
    history.create(NAMES[pick(NAMES.length)] ?? NAMES[0] ?? ("/" as StreamName));
    history.check();
  },
  (history, pick) => {
    history.append(NAMES[pick(NAMES.length)] ?? ("/" as StreamName), 1 + pick(9), pick(5) === 0);
  },
  (history, pick) => {
    history.remove(NAMES[pick(NAMES.length)] ?? ("/" as StreamName));
  },
  (history, pick) => {
    const lease = history.leases[pick(history.leases.length)];
    if (lease !== undefined) history.commit(lease, pick(20));
  },
  (history, pick) => {
    const lease = history.leases[pick(history.leases.length)];
    if (lease !== undefined) history.release(lease);
  },
  (history, pick) => {
    history.atMs = (history.atMs + pick(LEASE_MS * 2)) as TimeMs;
  },
];

const histories = fc.array(fc.tuple(fc.nat(ACTS.length - 1), fc.nat(), fc.nat()), {
  minLength: 1,
  maxLength: 120,
});

function play(steps: readonly (readonly [number, number, number])[]): History {
  const history = new History();
  for (const [act, one, other] of steps) {
    const numbers = [one, other];
    ACTS[act]?.(history, (count) => (count === 0 ? 0 : (numbers.shift() ?? 7) % count));
  }
  return history;
}

describe("every history", () => {
  test("gives each token once, keeps one holder for a stream, and never moves an offset back", () => {
    fc.assert(
      fc.property(histories, (steps) => {
        play(steps);
      }),
      { numRuns: 2000 },
    );
  });

  test("GD4 GD5 leaves every lease but the current ones without effect, whenever it is used again", () => {
    fc.assert(
      fc.property(histories, (steps) => {
        const history = play(steps);
        const before = JSON.stringify(imageOfGroups(history.world.groups));
        const current = new Set(
          [...history.group.cursors.values()].flatMap(({ holder, token }) =>
            holder === undefined ? [] : [token],
          ),
        );
        for (const lease of history.leases) {
          if (current.has(lease.token)) continue;
          expect(["lease_lost", "member_lost"]).toContain(history.commit(lease, 0));
          expect(history.release(lease)).toBe(0);
        }
        for (const member of history.members) {
          if (!history.group.members.has(member)) expect(history.claim(member)).toBeUndefined();
        }
        expect(JSON.stringify(imageOfGroups(history.world.groups))).toBe(before);
      }),
      { numRuns: 500 },
    );
  });

  test("is the same after it was made again from its image", () => {
    fc.assert(
      fc.property(histories, (steps) => {
        const { groups } = play(steps).world;
        const again = createGroupBook();
        const image: unknown = JSON.parse(JSON.stringify(imageOfGroups(groups)));
        restoreGroups(again, image as ReturnType<typeof imageOfGroups>);
        // Streams of members that have left are free in both books. Only the live book knows the difference.
        expect(imageOfGroups(again)).toEqual(imageOfGroups(groups));
        const freeOf = ({ free, left }: GroupState): readonly string[] =>
          [...free, ...[...left.values()].flatMap((streams) => [...streams])].toSorted();
        for (const [id, group] of groups.byId) {
          const { openCount, asked, members } = group;
          expect([...(again.byId.get(id)?.free ?? [])].toSorted()).toEqual(freeOf(group));
          expect(again.byId.get(id)).toMatchObject({ openCount, members });
          expect([...(again.byId.get(id)?.asked ?? [])].toSorted()).toEqual([...asked].toSorted());
        }
      }),
      { numRuns: 500 },
    );
  });

  test("GD1 GD3 reaches fair shares within three rounds from every state, and then asks for nothing", () => {
    fc.assert(
      fc.property(histories, fc.integer({ min: 1, max: 6 }), (steps, count) => {
        const history = play(steps);
        for (const member of history.members) history.leave(member);
        const live = Array.from({ length: count }, () => history.join());
        for (let round = 0; round < 3; round += 1) history.round(live);
        const shares = live.map((member) => history.held(member).length);
        expect(Math.max(...shares) - Math.min(...shares)).toBeLessThanOrEqual(1);
        expect([history.group.free.size, history.group.left.size]).toEqual([0, 0]);
        for (const member of live) expect(handOverOf(history.group, member)).toEqual([]);
      }),
      { numRuns: 500 },
    );
  });
});

describe("shares", () => {
  const member = (ordinal: number, max: number): Member => {
    const expiresAtMs = 0 as TimeMs;
    return { id: `m${ordinal}`, ordinal, max, expiresAtMs, isActive: true, holds: new Set() };
  };

  test("GD1 are equal but for one, in the order of joining", () => {
    const shares = shareOut(7, [member(3, 99), member(1, 99), member(2, 99)]);
    expect([...shares]).toEqual([
      ["m1", 3],
      ["m2", 2],
      ["m3", 2],
    ]);
  });

  test("GD1 of those who want less go to the others", () => {
    const shares = shareOut(10, [member(1, 1), member(2, 99), member(3, 3)]);
    expect(Object.fromEntries(shares)).toEqual({ m1: 1, m2: 6, m3: 3 });
  });

  test("GD1 add up to all streams, if anybody wants them", () => {
    const wishes = fc.array(fc.integer({ min: 1, max: 20 }), { minLength: 1, maxLength: 8 });
    fc.assert(
      fc.property(fc.nat(60), wishes, (count, maxes) => {
        const shares = shareOut(
          count,
          maxes.map((max, index) => member(index, max)),
        );
        const sum = [...shares.values()].reduce((one, other) => one + other, 0);
        expect(sum).toBe(
          Math.min(
            count,
            maxes.reduce((one, other) => one + other, 0),
          ),
        );
        for (const [index, max] of maxes.entries()) {
          expect(shares.get(`m${index}`)).toBeLessThanOrEqual(max);
        }
      }),
    );
  });
});

describe("a member", () => {
  test("GD4 that holds a stream again holds it by the new token only", () => {
    const history = new History(SETTINGS, 1);
    const member = history.join();
    const [first] = history.claim(member) ?? [];
    if (first === undefined) throw new Error("nothing was claimed");
    expect(history.release(first)).toBe(1);
    const [second] = history.claim(member) ?? [];
    expect(second?.stream).toBe(first.stream);
    expect(history.commit(first, 0)).toBe("lease_lost");
    expect(history.release(first)).toBe(0);
    expect(history.held(member)).toEqual([second]);
  });

  test("GD2 that has not called for its time loses its streams to the next one that claims", () => {
    const history = new History(SETTINGS, 3);
    const [one, other] = [history.join(), history.join()];
    const [lease] = history.claim(one) ?? [];
    history.atMs = (history.atMs + LEASE_MS) as TimeMs;
    if (lease === undefined) throw new Error("it was given nothing");
    expect(history.commit(lease, 0)).toBe("committed"); // No other member has claimed.
    history.atMs = (history.atMs + LEASE_MS) as TimeMs;
    expect(history.claim(other)).toHaveLength(3);
    expect(history.commit(lease, 0)).toBe("member_lost");
    expect(history.claim(one)).toBeUndefined();
  });

  test("that has joined and not claimed takes no share from the others", () => {
    const history = new History(SETTINGS, 4);
    const one = history.join();
    history.join();
    expect(history.claim(one)).toHaveLength(4);
    expect(handOverOf(history.group, one)).toEqual([]);
  });

  test("GD2 that is asked for a stream keeps it for its time, and then loses it without being lost itself", () => {
    const history = new History(SETTINGS, 2);
    const [one, other] = [history.join(), history.join()];
    const [first, second] = history.claim(one) ?? [];
    expect(history.claim(other)).toEqual([]);
    const [asked] = handOverOf(history.group, one);
    expect(asked).toBe(second?.stream);
    if (first === undefined || second === undefined) throw new Error("it was given too little");
    for (let tenth = 0; tenth < 9; tenth += 1) {
      history.atMs = (history.atMs + LEASE_MS / 10) as TimeMs;
      expect(history.commit(second, undefined)).toBe("committed");
      expect(history.claim(other)).toEqual([]);
    }
    history.atMs = (history.atMs + LEASE_MS / 10) as TimeMs;
    expect(history.claim(other)?.map(({ stream }) => stream)).toEqual([asked]);
    expect(history.commit(second, undefined)).toBe("lease_lost");
    expect(history.commit(first, undefined)).toBe("committed");
  });
});

describe("a stream", () => {
  test("that a group names or matches is in it from its creation on, from its beginning", () => {
    const history = new History({ ...SETTINGS, start: { kind: "tail" } }, 0);
    for (const name of NAMES) history.create(name);
    expect([...history.group.cursors.keys()].toSorted()).toEqual(NAMES.slice(0, 6).toSorted());
    expect([...history.group.cursors.values()].every(({ offset }) => offset === 0)).toBe(true);
  });

  test("that was there before begins where the settings say", () => {
    const history = new History(SETTINGS, 2);
    history.append(NAMES[0] ?? ("/" as StreamName), 5);
    applyChange(history.world, { kind: "group_deleted", atMs: history.atMs, group: GROUP });
    history.found({ ...SETTINGS, start: { kind: "tail" } });
    expect([...history.group.cursors.values()].map(({ offset }) => offset)).toEqual([5, 0]);
    const start = { kind: "offset", offset: 1 as Offset } as const;
    const other = decideGroup(history.world, "other", { ...SETTINGS, start }, history.atMs, ANY);
    expect(other).toEqual({ kind: "beyond_tail", stream: "/in/1" });
  });

  test("that was deleted and made again begins anew, and its old lease is worth nothing", () => {
    const history = new History(SETTINGS, 1);
    const name = NAMES[0] ?? ("/" as StreamName);
    history.append(name, 5);
    const member = history.join();
    const [lease] = history.claim(member) ?? [];
    if (lease === undefined) throw new Error("it was given nothing");
    expect(history.commit(lease, 5)).toBe("committed");
    history.remove(name);
    expect(history.commit(lease, 5)).toBe("lease_lost");
    history.create(name);
    history.append(name, 9);
    expect(history.commit(lease, 9)).toBe("lease_lost");
    const [again] = history.claim(member) ?? [];
    expect(again?.token).toBeGreaterThan(lease.token);
    expect(history.group.cursors.get(name)?.offset).toBe(0);
  });

  test("GD1 that is closed and committed to its end is finished, and in no member's share", () => {
    const history = new History(SETTINGS, 2);
    const name = NAMES[0] ?? ("/" as StreamName);
    history.append(name, 5, true);
    const member = history.join();
    const leases = history.claim(member) ?? [];
    const lease = leases.find(({ stream }) => stream === name);
    if (lease === undefined) throw new Error("it was not given the stream");
    expect(history.commit(lease, 5)).toBe("committed");
    expect(history.group.openCount).toBe(1);
    expect(history.commit(lease, 5)).toBe("committed"); // The answer was lost: the retry gets the same answer.
    expect(history.commit(lease, undefined)).toBe("lease_lost");
    expect(history.commit({ ...lease, token: lease.token - 1 }, 5)).toBe("lease_lost");
    expect(history.claim(member)).toHaveLength(1);
    const start = { kind: "beginning" } as const;
    const reset = decideGroupReset(history.group, [name], start, history.world, history.atMs, ANY);
    if (reset.kind === "reset") history.apply(reset.change);
    expect(history.claim(member)).toHaveLength(2);
  });
});

describe("a commit", () => {
  test("moves its offset on, and neither back nor beyond the tail", () => {
    const history = new History(SETTINGS, 1);
    history.append(NAMES[0] ?? ("/" as StreamName), 10);
    const [lease] = history.claim(history.join()) ?? [];
    if (lease === undefined) throw new Error("it was given nothing");
    expect(history.commit(lease, 6)).toBe("committed");
    expect(history.commit(lease, 6)).toBe("committed");
    expect(history.commit(lease, 5)).toBe("offset_regressed");
    expect(history.commit(lease, 11)).toBe("beyond_tail");
    expect(history.commit({ ...lease, member: "worker-99" }, 7)).toBe("member_lost");
    expect(history.commit({ ...lease, token: lease.token + 1 }, 7)).toBe("lease_lost");
    expect(history.group.cursors.get(lease.stream)?.offset).toBe(6);
  });

  test("that names a stream twice counts by its further offset", () => {
    const history = new History(SETTINGS, 1);
    history.append(NAMES[0] ?? ("/" as StreamName), 10);
    const [lease] = history.claim(history.join()) ?? [];
    if (lease === undefined) throw new Error("it was given nothing");
    const { stream, token } = lease;
    const commits = [5, 3].map((offset) => ({ stream, token, offset: offset as Offset }));
    const { streams } = history.world;
    const decision = decideCommit(history.group, lease.member, commits, streams, history.atMs, ANY);
    if (decision.kind === "committed") history.apply(decision.change);
    expect(history.group.cursors.get(stream)?.offset).toBe(5);
  });

  test("of a group that was deleted and made again is refused: its tokens were never given before", () => {
    const history = new History(SETTINGS, 1);
    const old = history.join();
    const [lease] = history.claim(old) ?? [];
    if (lease === undefined) throw new Error("it was given nothing");
    applyChange(history.world, { kind: "group_deleted", atMs: history.atMs, group: GROUP });
    history.found();
    const [fresh] = history.claim(history.join()) ?? [];
    expect(fresh?.token).toBeGreaterThan(lease.token);
    expect(history.commit(lease, 0)).toBe("member_lost");
  });
});

describe("a group of very many streams", () => {
  const MANY = 3 * GRANTED_MAX;

  test("GD1 a claim gives so many at a time, and the next ones give the rest", () => {
    const history = new History(SETTINGS, MANY);
    const member = history.join();
    const counts = [1, 2, 3, 4].map(() => {
      history.claim(member);
      return history.held(member).length;
    });
    expect(counts).toEqual([GRANTED_MAX, 2 * GRANTED_MAX, MANY, MANY]);
  });

  test("GD2 leaving touches no cursor, and everything that was held is free for the others", () => {
    const history = new History(SETTINGS, MANY);
    const [gone, heir] = [history.join(), history.join()];
    for (let round = 0; round < 3; round += 1) history.claim(gone);
    const before = [...history.group.cursors.values()];
    const held = history.leases.filter(({ member }) => member === gone);
    const changes = decideLeave(history.group, gone, history.atMs);
    for (const change of changes) applyChange(history.world, change);
    // The same objects, unchanged: leaving costs the same for any number of streams.
    expect([...history.group.cursors.values()]).toEqual(before);
    expect(history.group.members.has(gone)).toBe(false);
    for (const lease of held.slice(0, 5)) expect(history.commit(lease, 0)).toBe("member_lost");
    for (let round = 0; round < 3; round += 1) history.claim(heir);
    expect(history.held(heir).length).toBe(MANY);
    expect([history.group.left.size, history.group.free.size]).toEqual([0, 0]);
    history.check();
  });

  test("GD3 no more is asked back at a time than can be handed over soon", () => {
    const history = new History(SETTINGS, MANY);
    const [one, other] = [history.join(), history.join()];
    for (let round = 0; round < 3; round += 1) history.claim(one);
    history.claim(other);
    expect(handOverOf(history.group, one).length).toBe(ASKED_MAX);
    history.claim(other);
    expect(handOverOf(history.group, one).length).toBe(ASKED_MAX);
  });
});
