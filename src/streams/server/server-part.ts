/**
 * What a program can leave out of a server, so that its bundle does not have it. Streams, forks, producers and keys
 * are in every server; so are health, access rights, quotas and the audit.
 *
 *   - a server says by name what it was made without: the routes of a missing part answer `unsupported`, and never as a stream would;
 *   - `createServer` of `hapax/server` has all parts. A runtime with a small memory begins with none (`hapax/workers`).
 */

import type { Clock } from "../../base/clock.ts";
import type { Random } from "../../base/random.ts";
import type { RuleHeaders } from "../../protocol/rules.ts";
import type { BookRules } from "../core/books.ts";
import type { Access } from "../access/access.ts";
import type { Engine } from "../engine/engine.ts";
import type { StreamPage } from "../engine/listing.ts";
import type { RecordReader } from "../engine/compaction-pass.ts";
import type { Subscriptions } from "../engine/subscriptions.ts";
import type { WingName, Wings } from "../engine/wings.ts";
import type { MemberCheck } from "../access/check-identity.ts";
import type { Holdings } from "../engine/holdings.ts";
import type { ActKeyed } from "./acts.ts";
import type { BackupBook } from "./backup-book.ts";
import type { BodyDecoding, Decompress } from "./decoding.ts";
import type { ServerAnswer } from "./exchange.ts";
import type { Faults } from "./faults.ts";
import type { Gate, GateOptions } from "./gate.ts";
import type { QuotaBook } from "./quotas.ts";
import type { Route, RouteCall } from "./route.ts";
import type { GivenSubscriptionParts } from "./subscriptions.ts";
import type { WatchParts } from "./watch.ts";
import type { Watch } from "./watched.ts";

/** A part of a server. The constants of `hapax/workers` are parts; their members are not for programs. */
export interface ServerPart {
  /** What a server without it names in its refusals. */
  readonly name: PartName;
  /** What it answers, by fixed paths. */
  readonly routes: readonly (readonly Route[])[];
  /** The answer to paths of the part that no route takes. Undefined: the path is not of this part. */
  readonly unknown?: (path: string) => ServerAnswer | undefined;
  /** What `/` answers. Undefined: the text of every server. */
  readonly front?: (call: RouteCall) => Promise<ServerAnswer | undefined>;
  /** What it brings to the world of the store. A store that a program opens by itself has the rules of all. */
  readonly books?: Partial<BookRules>;
  /** What it brings to the engine. */
  readonly wings?: Omit<Wings, "createSubscriptions">;
  /** What records of JSON streams are, for changelogs. */
  readonly records?: RecordReader;
  /** The rules of streams as headers. */
  readonly rules?: RuleHeaders;
  /** Runs acts of administration that have a key. */
  readonly actKeyed?: ActKeyed;
  /** Makes what a server with `authorize` needs. */
  readonly access?: AccessPart;
  /** Makes what decodes bodies: with what the runtime decodes, or with something of its own. */
  readonly createDecoding?: (decompress: Decompress | undefined) => BodyDecoding;
  /** Makes what writes about requests. */
  readonly createWatch?: (parts: WatchParts) => Watch;
  /** Makes the subscriptions of the engine. */
  readonly createSubscriptions?: (given: GivenSubscriptionParts) => Subscriptions;
  /** Makes the book of backups that clients are making. */
  readonly createBackups?: (clock: Clock) => BackupBook;
  /** Makes the faults of a server with the option `testFaults`. */
  readonly createFaults?: (clock: Clock, random: Random) => Faults;
}

export interface AccessPart {
  readonly createGate: (options: GateOptions) => Gate;
  readonly createQuotas: (clock: Clock, holdings: Holdings) => QuotaBook;
  readonly checkQuotas: MemberCheck;
  readonly listReadable: (
    engine: Engine,
    access: Access,
    prefix: string,
    after: string,
    limit: number,
  ) => Promise<StreamPage>;
}

export type PartName =
  | "compression"
  | "dashboard"
  | "description"
  | "followAll"
  | "logs"
  | "testFaults"
  | WingName;
