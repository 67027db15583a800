/**
 * Turns groups into plain data for a snapshot, and back. It leaves out what follows from the rest.
 *
 *   - a book made from its image is the same book: same groups, same leases, same tokens. Only the order in which
 *     it gives free streams may differ.
 */

import { addGroup, type MutableGroupBook } from "./group.ts";
import type {
  Cursor,
  GroupState,
  GroupBook,
  Job,
  JobWindow,
  LeaseToken,
  Member,
} from "./group-state.ts";
import type { Offset } from "./types.ts";

type MemberImage = Omit<Member, "holds">;

/** A cursor as plain JSON data: `jobs` as a list in the order of their offsets. */
export interface CursorImage extends Omit<Cursor, "jobs"> {
  readonly jobs?: { readonly next: Offset; readonly open: readonly Job[] };
}

interface GroupImage extends Pick<GroupState, "id" | "settings" | "createdAtMs"> {
  readonly members: readonly MemberImage[];
  readonly cursors: readonly CursorImage[];
}

/** Plain JSON data. */
export interface GroupBookImage {
  readonly nextToken: LeaseToken;
  readonly groups: readonly GroupImage[];
}

export function imageOfGroups(book: GroupBook): GroupBookImage {
  return {
    nextToken: book.nextToken,
    groups: [...book.byId.values()].map(({ id, settings, createdAtMs, members, cursors }) => ({
      id,
      settings,
      createdAtMs,
      members: [...members.values()].map(({ id: member, ordinal, expiresAtMs, isActive, max }) => {
        return { id: member, ordinal, expiresAtMs, isActive, max };
      }),
      cursors: Array.from(cursors.values(), (cursor) => {
        const { jobs, ...others } = cursor;
        const { holder } = others;
        return {
          ...others,
          // A member that has left holds nothing.
          holder: holder !== undefined && members.has(holder) ? holder : undefined,
          ...(jobs === undefined
            ? {}
            : { jobs: { next: jobs.next, open: [...jobs.open.values()] } }),
        };
      }),
    })),
  };
}

/** Fills an empty book. */
export function restoreGroups(readonlyBook: GroupBook, image: GroupBookImage): void {
  // The cast gives write access. The types make the book read-only for all other code.
  const book = readonlyBook as unknown as MutableGroupBook;
  book.nextToken = image.nextToken;
  for (const kept of image.groups) {
    const group = addGroup(book, kept);
    for (const member of kept.members) {
      group.members.set(member.id, { ...member, holds: new Set() });
    }
    for (const cursor of kept.cursors) {
      // JSON leaves out undefined members.
      const { holder, askedUntilMs, jobs: window, ...others } = cursor;
      const jobs = window === undefined ? {} : { jobs: windowOf(window) };
      group.cursors.set(cursor.stream, { ...others, holder, askedUntilMs, ...jobs });
      group.jobCount += window?.open.length ?? 0;
      if (askedUntilMs !== undefined) group.asked.add(cursor.stream);
      if (cursor.isFinished) continue;
      group.openCount += 1;
      if (holder === undefined) group.free.add(cursor.stream);
      else group.members.get(holder)?.holds.add(cursor.stream);
    }
    book.jobCount += group.jobCount;
  }
}

function windowOf({ next, open }: NonNullable<CursorImage["jobs"]>): JobWindow {
  const jobs = open.map((job): [Offset, Job] => [job.offset, { ...job, holder: job.holder }]);
  return { next, open: new Map(jobs) };
}
