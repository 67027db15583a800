/**
 * PORT. A database that keeps the positions of a pipeline beside its effects, so that both change in one
 * transaction of its own. Adapters: toolkit/sinks/sqlite.ts, toolkit/sinks/postgres.ts.
 *
 * Contract, held by testing/sink-conformance.ts against every implementation:
 *   SK1  effects and position are committed together, or neither is;
 *   SK2  once a place was taken with a token, every smaller token moves nothing there, and neither do its effects stay;
 *   SK3  a position moves only from where the caller believes it to be;
 *   SK4  what is no fault of the work is told as `unreachable`: a connection that is lost, a deadlock, a database that
 *        restarts; or as `store_full` if there is no room. The same may succeed later. A database that will never take
 *        it, because a name or a password is wrong, is `invalid_settings`. Any other error is that of the work.
 */

/** One stream of one pipeline. */
export interface SinkPlace {
  readonly pipeline: string;
  readonly stream: string;
}

/** Where a pipeline's effects go, together with its positions. The contract stands at the head of this file. */
export interface Sink<Tx> {
  /** Makes the table that it needs. Safe to call again, and by many at once. */
  prepare(): Promise<void>;
  /**
   * From now on only this token and greater ones move the position. Answers where it is; undefined: it was never moved.
   * Throws `lease_lost` if a greater token was here.
   */
  take(place: SinkPlace, token: number): Promise<string | undefined>;
  /**
   * One transaction: what `work` does with it, and the position from `from` to what `work` returns. Throws `lease_lost`
   * and keeps nothing if the place was taken with a greater token or is somewhere else. After any other error the outcome
   * may be unknown: `take` tells.
   */
  move(
    place: SinkPlace,
    token: number,
    from: string | undefined,
    work: (tx: Tx) => string | Promise<string>,
  ): Promise<void>;
}
