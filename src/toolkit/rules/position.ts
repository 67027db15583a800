/**
 * Who may move the position of a pipeline that is kept beside its effects, and from where. The tokens are those of the
 * group's leases: the server gives a greater one to every next holder of a stream. The rules are those of the port,
 * client/processing/sink.ts. Pure.
 */

/** The position of one stream of a pipeline, and the lease that took it last. */
export interface HeldPosition {
  readonly token: number;
  /** Undefined: it was taken and never moved. */
  readonly at: string | undefined;
}

/** `lost`: the caller holds the stream no more; the reason is for people. */
export type PositionDecision =
  | { readonly kind: "granted" }
  | { readonly kind: "lost"; readonly reason: string };

const GRANTED: PositionDecision = { kind: "granted" };

/** Decides whether the holder of the token may take the position; undefined: none was kept yet. */
export function decideTake(held: HeldPosition | undefined, token: number): PositionDecision {
  if (held === undefined || held.token <= token) return GRANTED;
  return { kind: "lost", reason: `token ${token} was followed by ${held.token}` };
}

/** Decides whether the holder of the token may move the position, which it believes to be `from`. */
export function decideMove(
  held: HeldPosition | undefined,
  token: number,
  from: string | undefined,
): PositionDecision {
  const decision = decideTake(held, token);
  if (decision.kind === "lost") return decision;
  if (held === undefined) return { kind: "lost", reason: "the position was never taken" };
  if (held.at === from) return GRANTED;
  const [is, believed] = [held.at, from].map((at) => at ?? "its beginning");
  return { kind: "lost", reason: `it is at ${is}, not at ${believed}` };
}
