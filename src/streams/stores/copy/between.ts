/** Opens both sides of a copy by what people call them, and closes them. */

import { systemClock } from "../../../base/clock.ts";
import { HapaxError } from "../../../base/errors.ts";
import { asDirectoryError } from "../file/directory-error.ts";
import { keepsPromise, readSettings, requireSettings } from "../postgres/engine-checks.ts";
import { openHosts, withPatience } from "../postgres/hosts.ts";
import { quoteSchema } from "../postgres/schema.ts";
import { type CopyEvents, type CopyReport, copyStore } from "./copy.ts";
import { openDatabaseSource, openDatabaseTarget } from "./database-side.ts";
import { openDirectorySource, openDirectoryTarget } from "./directory-side.ts";
import type { CopySource, EndFrame } from "./sides.ts";

const LEASE_MS = 5000;
const ANSWER_MS = 30_000;

/** Where a store is: a directory, or a URL of PostgreSQL. */
export interface CopyPlaces {
  readonly from: string;
  readonly to: string;
}

export interface CopyOptions extends CopyEvents {
  /** Of the tables. Default `hapax`. */
  readonly schema?: string;
  /** What the database must promise if it is the target, as for a server. Default `replicated`. */
  readonly durability?: "replicated" | "fsync" | "os";
  readonly replication?: "standby" | "storage";
  /** How long an owner of the tables may give no sign of life. Default 5,000. */
  readonly leaseMs?: number;
  readonly onWarning?: (warning: string) => void;
}

/** Copies a store from a directory to a database, or from a database to a directory. */
export async function copyBetween(places: CopyPlaces, options: CopyOptions): Promise<CopyReport> {
  const { from, to } = places;
  if (isUrl(from) === isUrl(to)) {
    const what = "one of the two must be a directory, and the other one a database";
    throw new HapaxError("invalid_options", what);
  }
  return isUrl(from) ? fromDatabase(from, to, options) : toDatabase(from, to, options);
}

function isUrl(place: string): boolean {
  return /^postgres(ql)?:\/\//i.test(place);
}

async function fromDatabase(url: string, path: string, options: CopyOptions): Promise<CopyReport> {
  const session = await openSession(url);
  try {
    // Nothing is written but the ownership, so the settings of the database do not matter.
    const source = await openDatabaseSource(session, {
      ...asDatabase(options),
      keepsPromise: () => true,
    });
    const open = async () => {
      return openDirectoryTarget(path, source.storeId).catch((error: unknown) => {
        throw asDirectoryError(error, path);
      });
    };
    return await copyFrom(source, open, options);
  } finally {
    await session.close().catch(() => undefined);
  }
}

async function toDatabase(path: string, url: string, options: CopyOptions): Promise<CopyReport> {
  const source = await openDirectorySource(path).catch((error: unknown) => {
    throw asDirectoryError(error, path);
  });
  const session = await openSession(url).catch(async (error: unknown) => {
    await source.close(undefined);
    throw error;
  });
  try {
    const open = async () => {
      const { onWarning = () => undefined } = options;
      requireSettings(await readSettings(session), options, onWarning);
      return openDatabaseTarget(session, source, asDatabase(options));
    };
    return await copyFrom(source, open, options);
  } finally {
    await session.close().catch(() => undefined);
  }
}

async function copyFrom(
  source: CopySource,
  openTarget: () => ReturnType<typeof openDirectoryTarget>,
  options: CopyOptions,
): Promise<CopyReport> {
  let last: EndFrame | undefined;
  try {
    const target = await openTarget();
    try {
      return await copyStore(source, target, options, (found) => (last = found));
    } finally {
      await target.close();
    }
  } finally {
    await source.close(last);
  }
}

async function openSession(url: string) {
  return withPatience(await openHosts(url), systemClock, ANSWER_MS);
}

function asDatabase(options: CopyOptions) {
  const { schema = "hapax", leaseMs = LEASE_MS, onWarning = () => undefined } = options;
  return {
    schema: quoteSchema(schema),
    leaseMs,
    onWarning,
    keepsPromise: (level: string, standbys: string) => keepsPromise(options, level, standbys),
  };
}
