/**
 * The tables of one shard, for a node that owns several: one sign of life for all, and takeovers that the node has decided.
 *
 *   - CT1 a shard is taken only at the epoch and after the sign of life at which the node saw that it may be taken: a faster node
 *     keeps it, and so does an owner that has given another sign.
 */

import { HapaxError } from "../../base/errors.ts";
import type { PostgresTables } from "../stores/postgres/postgres-tables.ts";
import type { Session } from "../stores/postgres/session.ts";
import type {
  Done,
  FencedWrite,
  FramePiece,
  FrameRow,
  ImageRow,
  Owner,
  ReleaseMark,
  SegmentRow,
  ShardState,
  ShardTables,
  Sight,
} from "../stores/postgres/tables.ts";

export interface ClusterTablesParts {
  readonly tables: PostgresTables;
  readonly session: Session;
  /** The name of the schema, quoted. */
  readonly schema: string;
  readonly shard: number;
  /** At which the node decided to take the shard. */
  readonly epoch: number;
  /** The owner at that moment, and its last sign of life. Undefined: there is none, or its row is gone. */
  readonly former: (Owner & { readonly beat: number }) | undefined;
  /** The epoch of the shard, as the node saw it last. */
  readonly epochNow: () => number;
  /** Gives the takeover up. */
  readonly abort: (reason: Error) => void;
  /** Called after each takeover that was answered. */
  readonly onTaken: () => void;
}

export class ClusterTables implements ShardTables {
  readonly #parts: ClusterTablesParts;
  readonly #tables: PostgresTables;

  constructor(parts: ClusterTablesParts) {
    this.#parts = parts;
    this.#tables = parts.tables;
  }

  state(): Promise<ShardState> {
    return this.#tables.state();
  }

  async take(epoch: number, owner: Owner): Promise<Done & { readonly timeMs: number }> {
    const { epoch: decided, former } = this.#parts;
    // A later epoch is one's own if the first answer was lost or doubtful.
    const state = epoch === decided ? undefined : await this.#tables.state();
    if (state !== undefined && state.owner?.life !== owner.life) {
      throw this.#giveUp("another node has taken the shard");
    }
    const taken = await this.#tables.take(epoch, owner, epoch === decided ? former : undefined);
    if (!taken.isDone && former !== undefined && (await this.#tables.state()).epoch === decided) {
      throw this.#giveUp("the owner of the shard has given a sign of life");
    }
    this.#parts.onTaken();
    return taken;
  }

  #giveUp(why: string): HapaxError {
    const error = new HapaxError("shard_owned", `${why}: shard=${this.#parts.shard}`);
    this.#parts.abort(error);
    return error;
  }

  /** Keeps the row of the node, which owns other shards. */
  async release(epoch: number, mark: ReleaseMark | undefined): Promise<Done> {
    const { session, schema, shard } = this.#parts;
    const { rows, isSure } = await session.run(
      `UPDATE ${schema}.hapax_shard SET owner = NULL, life = NULL, released_lsn = $3, released_crc = $4
        WHERE shard = $1 AND epoch = $2 RETURNING shard`,
      [shard, epoch, mark?.lsn ?? null, mark?.crc ?? null],
    );
    return { isDone: rows.length > 0, isSure };
  }

  /** The node gives one sign for all of its shards, and reads all epochs with it. */
  beat(): Promise<number> {
    return Promise.resolve(this.#parts.epochNow());
  }

  write(epoch: number, write: FencedWrite): Promise<Done> {
    return this.#tables.write(epoch, write);
  }

  confirm(epoch: number, write: FencedWrite): Promise<Done> {
    return this.#tables.confirm(epoch, write);
  }

  look(write: FencedWrite, epoch: number): Promise<Sight> {
    return this.#tables.look(write, epoch);
  }

  frames(segment: number, from: number): Promise<readonly FrameRow[]> {
    return this.#tables.frames(segment, from);
  }

  read(segment: number, position: number, length: number): Promise<readonly FramePiece[]> {
    return this.#tables.read(segment, position, length);
  }

  endOf(segment: number): Promise<number> {
    return this.#tables.endOf(segment);
  }

  segments(): Promise<readonly SegmentRow[]> {
    return this.#tables.segments();
  }

  images(): Promise<readonly ImageRow[]> {
    return this.#tables.images();
  }

  imagePart(image: ImageRow, part: number): Promise<Uint8Array | undefined> {
    return this.#tables.imagePart(image, part);
  }

  released(): Promise<ReleaseMark | undefined> {
    return this.#tables.released();
  }

  sweep(epoch: number): Promise<void> {
    return this.#tables.sweep(epoch);
  }
}
