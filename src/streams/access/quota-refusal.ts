/** The refusal of a caller that has used up a quota. PROTOCOL.md §21.9. */

import { HapaxError } from "../../base/errors.ts";

/** Quotas of an identity. Those of storage belong to its namespace. */
export type UsageQuota = "requests" | "live_readers" | "appends_per_second" | "bytes_per_second";

/** The refusal of a caller that has used up a quota. It says when the call is possible. */
export class QuotaRefusal extends HapaxError {
  readonly quota: UsageQuota;
  readonly retryAfterSeconds: number;

  constructor(quota: UsageQuota, limit: number, retryAfterSeconds: number) {
    super("quota_exceeded", `quota=${quota} limit=${limit}`);
    this.quota = quota;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}
