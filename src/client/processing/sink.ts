/**
 * PORT. A database that keeps the positions of a pipeline beside its effects, so that both change in one
 * transaction of its own. Adapter: toolkit/once/ledger-sink.ts, over every ledger.
 *
 * Contract, held by testing/sink-conformance.ts against every implementation:
 *   - effects and position are committed together, or neither is;
 *   - once a place was taken with a token, a smaller token moves nothing there, and none of its effects stay;
 *   - a position moves only from the place that the caller names;
 *   - a failure that is not the work's fault is `unreachable`: a lost connection, a deadlock, a database that
 *     restarts; or `store_full` if there is no room. The same work may succeed later. If the database will never take
 *     it, because a name or a password is wrong, it is `invalid_options`. Any other error is that of the work.
 */

/** One stream of one pipeline. */
export interface SinkPlace {
  readonly pipeline: string;
  readonly stream: string;
}

/**
 * Stores a pipeline's effects together with its positions. Every implementation must pass `sinkConformance` of
 * `hapax/testing`.
 */
export interface Sink<Tx> {
  /** Creates the tables that it needs. It may be called again, and by several processes at once. */
  prepare(): Promise<void>;
  /**
   * Stores the token for the place (one stream of one pipeline): from now on only this token and greater ones may move the
   * position. Returns the position; undefined if it was never moved. Throws `lease_lost` if a greater token is stored.
   */
  take(place: SinkPlace, token: number): Promise<string | undefined>;
  /**
   * Runs `work` in one transaction that also moves the position from `from` to the result of `work`. Throws `lease_lost` and
   * keeps nothing if a greater token has taken the place, or if the position is not `from`. After any other error the outcome
   * may be unknown: `take` returns the position.
   */
  move(
    place: SinkPlace,
    token: number,
    from: string | undefined,
    work: (tx: Tx) => string | Promise<string>,
  ): Promise<void>;
}
