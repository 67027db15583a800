/** Backups of a running server: an instant, and ranges of what it consists of. PROTOCOL.md §27.1. */

import { formatIncarnation } from "../../base/incarnation.ts";
import { HEADER } from "../../protocol/headers.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import { invalid } from "../../protocol/refusal.ts";
import { formatRfc3339, parseCount, parseQuery } from "../../protocol/values.ts";
import { wingOf } from "../engine/wings.ts";
import { type BackupBook, type OpenBackup, heldBytes } from "./backup-book.ts";
import type { ServerAnswer } from "./exchange.ts";
import { json, queryText } from "./json.ts";
import type { ServerParts } from "./parts.ts";
import type { Route, RouteCall, RouteOperation } from "./route.ts";
import { readRoute } from "./route.ts";

const BACKUPS_PATH = "/_hapax/backups";

/** A backup has the data of all streams, and of all who use them. */
const NEEDS: Pick<RouteOperation, "needs"> = { needs: ["admin"] };

export const BACKUP_ROUTES: readonly Route[] = [
  {
    path: BACKUPS_PATH,
    methods: {
      POST: { ...NEEDS, handle: begin },
    },
    allow: "POST, OPTIONS",
  },
  {
    path: `${BACKUPS_PATH}/{backup}`,
    methods: {
      DELETE: { ...NEEDS, handle: end },
    },
    allow: "DELETE, OPTIONS",
  },
  readRoute(`${BACKUPS_PATH}/{backup}/segments/{segment}`, {
    ...NEEDS,
    handle: readSegment,
  }),
  readRoute(`${BACKUPS_PATH}/{backup}/snapshots/{lsn}`, {
    ...NEEDS,
    handle: readSnapshot,
  }),
];

/** It comes with these routes. */
export function openBackupsOf({ backups }: ServerParts): BackupBook {
  return wingOf(backups, "observation");
}

async function begin({ parts, access }: RouteCall): Promise<ServerAnswer> {
  access.requireWholeServer("admin");
  const { engine, random } = parts;
  const backup = await openBackupsOf(parts).begin(random.id(), () => engine.backup());
  const answer = json(201, describe(backup, formatIncarnation(engine.world.incarnation)));
  const details = { lsn: String(backup.store.lsn), bytes: String(heldBytes(backup.store)) };
  return { ...answer, audit: { acts: [{ act: "backup.begin", target: backup.id }], details } };
}

function describe({ id, takenAtMs, store }: OpenBackup, incarnation: string): object {
  const { storeId, lsn, crc, changes, segments, images } = store;
  return {
    backup: id,
    takenAt: formatRfc3339(takenAtMs),
    leaseSeconds: LIMITS.backupLeaseMs / 1000,
    storeId,
    incarnation,
    lsn,
    crc,
    changes,
    bytes: heldBytes(store),
    segments: segments.map(({ number, firstLsn, salt, crcBefore, end: bytes }) => {
      return { number, firstLsn, salt, crcBefore, bytes };
    }),
    snapshots: images,
  };
}

function end({ exchange, parts, access, params }: RouteCall): ServerAnswer {
  access.requireWholeServer("admin");
  const done = queryText(parseQuery(exchange.query), "done");
  if (done !== undefined && done !== "true") throw invalid("done", "is not true");
  const [id = ""] = params;
  const ended = openBackupsOf(parts).end(id, done === "true");
  const acts = [{ act: "backup.end", target: id }];
  const audit = ended === undefined ? false : { acts, details: { done: done ?? "false" } };
  return { status: 204, headers: {}, audit };
}

function readSegment(call: RouteCall): Promise<ServerAnswer> {
  const { store } = find(call);
  const number = parseCount(call.params[1] ?? "");
  const segment = store.segments.find((one) => one.number === number);
  if (segment === undefined) throw invalid("segment", "is not in the backup");
  return readRange(call, segment.end, (position, length) =>
    store.readSegment(segment.number, position, length),
  );
}

function readSnapshot(call: RouteCall): Promise<ServerAnswer> {
  const { store } = find(call);
  const lsn = parseCount(call.params[1] ?? "");
  const image = store.images.find((one) => one.lsn === lsn);
  if (image === undefined) throw invalid("snapshot", "is not in the backup");
  return readRange(call, image.bytes, (position, length) =>
    store.readImage(image.lsn, position, length),
  );
}

function find({ parts, access, params: [id = ""] }: RouteCall): OpenBackup {
  access.requireWholeServer("admin");
  return openBackupsOf(parts).find(id);
}

/** At most so many bytes, and none behind the end that the backup names. */
async function readRange(
  { exchange, parts }: RouteCall,
  end: number,
  read: (position: number, length: number) => Promise<Uint8Array>,
): Promise<ServerAnswer> {
  const from = parseCount(queryText(parseQuery(exchange.query), "from") ?? "0");
  if (from === undefined || from >= end) throw invalid("from", `is not a number below ${end}`);
  const length = Math.min(LIMITS.backupPartBytesMax, end - from);
  const share = await parts.answers.take(length, exchange.peer);
  try {
    const body = await read(from, length);
    share.resize(body.length);
    const headers = {
      [HEADER.contentType]: "application/octet-stream",
      [HEADER.cacheControl]: "no-store",
      "Content-Disposition": "attachment",
    };
    return { status: 200, headers, body, share };
  } catch (error) {
    share.release();
    throw error;
  }
}
