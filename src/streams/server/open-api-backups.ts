/** The operations of backups, for the description of the interface. PROTOCOL.md §27.1. */

import { BYTES, COUNT, type Json, list, object, TEXT } from "./open-api-components.ts";
import type { OperationDetails } from "./open-api-details.ts";

const PLAN: Json = object(
  {
    backup: TEXT,
    takenAt: { type: "string", format: "date-time" },
    leaseSeconds: COUNT,
    storeId: TEXT,
    incarnation: TEXT,
    lsn: COUNT,
    crc: COUNT,
    changes: COUNT,
    bytes: COUNT,
    segments: list(
      object({ number: COUNT, firstLsn: COUNT, salt: COUNT, crcBefore: COUNT, bytes: COUNT }),
    ),
    snapshots: list(object({ lsn: COUNT, bytes: COUNT })),
  },
  ["backup", "takenAt", "storeId", "incarnation", "lsn", "segments", "snapshots"],
);

const PART: OperationDetails = {
  parameters: ["from"],
  answers: {
    200: {
      description: "The bytes from this position on, at most 1 MiB of them.",
      content: { "application/octet-stream": BYTES },
    },
  },
  refusals: ["backup_over", "data_damaged"],
};

export const BACKUP_OPERATIONS: Readonly<Record<string, OperationDetails>> = {
  "POST /_hapax/backups": {
    answers: {
      201: { description: "The instant.", content: { "application/json": PLAN } },
    },
    refusals: ["unsupported", "backup_over"],
  },
  "DELETE /_hapax/backups/{backup}": {
    parameters: ["done"],
    answers: { 204: { description: "It has ended." } },
  },
  "GET /_hapax/backups/{backup}/segments/{segment}": PART,
  "GET /_hapax/backups/{backup}/snapshots/{lsn}": PART,
};
