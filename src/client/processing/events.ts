/** The events of a consumer. */

import type { HapaxError } from "../../base/errors.ts";

/** An event of a consumer, for logs and metrics. You need not react to it. */
export type ConsumerEvent =
  | { readonly kind: "joined"; readonly member: string }
  /** The server has forgotten the member: it joins again. */
  | { readonly kind: "member_lost"; readonly error: HapaxError }
  | {
      readonly kind: "leased" | "asked" | "handed_over" | "finished";
      readonly stream: string;
      readonly token: number;
    }
  | {
      readonly kind: "lost";
      readonly stream: string;
      readonly token: number;
      readonly error: HapaxError;
    }
  /** A call that failed and is tried again. */
  | { readonly kind: "retrying"; readonly error: HapaxError };
