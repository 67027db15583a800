/** What every handler works with. */

import type { Clock } from "../../base/clock.ts";
import type { Digest } from "../../base/digest.ts";
import type { Engine } from "../engine/engine.ts";
import type { Random } from "../../base/random.ts";
import type { StreamName } from "../core/types.ts";
import type { RuleHeaders } from "../../protocol/rules.ts";
import type { ActKeyed } from "./acts.ts";
import type { AnswerBudget } from "./answer-budget.ts";
import type { BackupBook } from "./backup-book.ts";
import type { BodyDecoding } from "./decoding.ts";
import type { LoadDashboard } from "./dashboard.ts";
import type { Doors } from "./doors.ts";
import type { Drain } from "./drain.ts";
import type { Exchange } from "./exchange.ts";
import type { Gate } from "./gate.ts";
import type { ResolvedServerOptions } from "./options.ts";
import type { QuotaBook } from "./quotas.ts";
import type { RouteBook } from "./route-book.ts";
import type { AccessPart, ServerPart } from "./server-part.ts";

export interface ServerParts {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly random: Random;
  readonly options: ResolvedServerOptions;
  readonly doors: Doors;
  readonly gate: Gate;
  /** What identities use of their quotas. Undefined: there are no identities. */
  readonly quotas: QuotaBook | undefined;
  /** Lists what a caller may read that may not read everything. Undefined: there are no such callers. */
  readonly listReadable: AccessPart["listReadable"] | undefined;
  /** Runs acts that have a key. Undefined: they are refused. */
  readonly actKeyed: ActKeyed | undefined;
  readonly drain: Drain;
  /** Backups that are being made. Undefined: this server makes none. */
  readonly backups: BackupBook | undefined;
  /** The room for answers to reads. */
  readonly answers: AnswerBudget;
  readonly digest: Digest;
  /** What streams keep, as headers. */
  readonly rules: RuleHeaders;
  /** Decodes compressed bodies. */
  readonly decoding: BodyDecoding;
  readonly dashboard: LoadDashboard | undefined;
  /** Throws the refusal if the stream belongs to another server than the one that the request was sent to. */
  readonly checkPlace: ((stream: StreamName, exchange: Exchange) => void) | undefined;
  readonly routes: RouteBook;
  /** What `/` answers in the place of its text. */
  readonly front: ServerPart["front"];
}

/** The parts in force. A reload replaces them as a whole and never changes one of them. */
export interface PartsHolder {
  current: ServerParts;
}
