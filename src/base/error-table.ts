/**
 * Every refusal a caller can meet: one table. docs/errors.md is checked against it.
 *
 * A new code is earned only if the caller would act differently on it. `code` is the API; the message is for people. The
 * HTTP status stands here; error-codes.ts repeats those that the client needs, and does not compile if they differ.
 */

import { type ErrorSpec, STORE_ERRORS } from "./error-table-stores.ts";

export type { ErrorSpec } from "./error-table-stores.ts";

/** Every code with its HTTP status, what to do about it, and whether repeating the call helps. */
export const ERRORS = {
  invalid_request: {
    status: 400,
    retry: "never",
    help: "Correct the field that the detail names; PROTOCOL.md has its grammar.",
  },
  invalid_json: {
    status: 400,
    retry: "never",
    help: "Send one JSON value, or a non-empty array of records.",
  },
  identity_missing: {
    status: 400,
    retry: "never",
    help: "Send Idempotency-Key or producer headers: they make a retry safe.",
  },
  key_missing: {
    status: 400,
    retry: "never",
    help: "Send one that is new for every operation, and the same one for its retries.",
  },
  epoch_start: {
    status: 400,
    retry: "never",
    help: "Send the first append of a new Producer-Epoch with Producer-Seq: 0.",
  },
  token_invalid: {
    status: 401,
    retry: "never",
    help: "Send the token of the wake or claim in the Authorization header.",
  },
  token_expired: {
    status: 401,
    retry: "never",
    help: "Wait for the next wake, or claim again.",
  },
  unauthenticated: {
    status: 401,
    retry: "never",
    help: "Send a token of this server: the client's option `token`, HAPAX_TOKEN or --token-file. `hapax tokens create` makes one.",
  },
  credential_expired: {
    status: 401,
    retry: "never",
    help: "Send a new one. A client whose option `token` is a function calls it.",
  },
  not_allowed: {
    status: 403,
    retry: "never",
    help: "Use a token that has a grant for the action that the answer names.",
  },
  producer_fenced: {
    status: 403,
    retry: "never",
    help: "Stop this writer, or start a higher Producer-Epoch at Producer-Seq: 0.",
  },
  origin_not_allowed: {
    status: 403,
    retry: "never",
    help: "Start the server with --cors-origin and the page's origin, or '*' for every page.",
  },
  producer_not_found: {
    status: 404,
    retry: "never",
    help: "Check the id and the stream: GET /_hapax/producers lists them.",
  },
  not_found: {
    status: 404,
    retry: "never",
    help: "Check the path; /_hapax/ and /v1/stream/__ds/ are reserved.",
  },
  stream_not_found: {
    status: 404,
    retry: "never",
    help: "Create it with PUT first.",
  },
  subscription_not_found: {
    status: 404,
    retry: "never",
    help: "Create it with PUT; a deleted one loses its cursors.",
  },
  transaction_not_found: {
    status: 404,
    retry: "never",
    help: "It may still be running: send it again under the same identity to be sure.",
  },
  group_not_found: {
    status: 404,
    retry: "never",
    help: "Create it with PUT; a deleted one loses its offsets.",
  },
  saga_not_found: {
    status: 404,
    retry: "never",
    help: "Check its name, scope and key; a saga that has ended is kept for retainMs.",
  },
  method_not_allowed: {
    status: 405,
    retry: "never",
    help: "The Allow header lists the methods that do.",
  },
  request_timeout: {
    status: 408,
    retry: "same",
    help: "Send it again, faster or in smaller parts; nothing was stored.",
  },
  stream_exists: {
    status: 409,
    retry: "never",
    help: "Use another path, or create it with the configuration that it has.",
  },
  stream_in_use: {
    status: 409,
    retry: "never",
    help: "Use another path until the last fork is deleted.",
  },
  stream_closed: {
    status: 409,
    retry: "never",
    help: "Nothing can follow a close; read it to its end or use another stream.",
  },
  content_type_mismatch: {
    status: 409,
    retry: "never",
    help: "Send the Content-Type that the stream was created with.",
  },
  sequence_regression: {
    status: 409,
    retry: "never",
    help: "Another writer was here, or this is a retry: read the tail before you go on.",
  },
  producer_gap: {
    status: 409,
    retry: "later",
    help: "Send the append that Producer-Expected-Seq names, then this one again.",
  },
  epoch_exhausted: {
    status: 409,
    retry: "never",
    help: "Reset it with DELETE /_hapax/producers/<id>?stream=<path>, or use another Producer-Id.",
  },
  subscription_exists: {
    status: 409,
    retry: "never",
    help: "Delete it first, or use another id.",
  },
  subscription_fenced: {
    status: 409,
    retry: "never",
    help: "Drop the work: a newer generation holds the subscription.",
  },
  already_claimed: {
    status: 409,
    retry: "later",
    help: "Wait for the next wake event.",
  },
  no_pending_work: {
    status: 409,
    retry: "later",
    help: "Wait for the next wake event.",
  },
  invalid_ack: {
    status: 409,
    retry: "never",
    help: "Acknowledge an offset after the last acknowledged one, up to the tail.",
  },
  group_exists: {
    status: 409,
    retry: "never",
    help: "Delete it first, or use another name.",
  },
  lease_lost: {
    status: 409,
    retry: "never",
    help: "Drop what was done since the last commit, and claim again: another member may have the stream now.",
  },
  member_lost: {
    status: 409,
    retry: "never",
    help: "Drop what was done since the last commit, and join again.",
  },
  offset_regressed: {
    status: 409,
    retry: "never",
    help: "Commit offsets in their order; only a reset moves one back.",
  },
  in_progress: {
    status: 409,
    retry: "later",
    help: "Repeat the same call after a pause: it answers with the result, or takes the work over.",
  },
  outcome_unknown: {
    status: 409,
    retry: "never",
    help: "Find out whether the effect happened, and return that from `reconcile`. Until then the work is not repeated.",
  },
  attempts_exhausted: {
    status: 409,
    retry: "never",
    help: "Find out why the work fails or ends its process. Then raise attemptsMax or delete the entry.",
  },
  act_refused: {
    status: 409,
    retry: "never",
    help: "The message says why. Look at the saga: `hapax saga show`.",
  },
  failure_kept: {
    status: 409,
    retry: "never",
    help: "The message is that of the failure. Use a new key to try again.",
  },
  answer_not_kept: {
    status: 409,
    retry: "never",
    help: "Read the result in another way, or raise answerBytesMax.",
  },
  stream_gone: {
    status: 410,
    retry: "never",
    help: "Its data lives on in forks only; use another path.",
  },
  server_restored: {
    status: 409,
    retry: "never",
    help: "What was acknowledged since the backup may be gone. Decide what to do, then accept the restore: docs/guides/backup-and-restore.md.",
  },
  backup_over: {
    status: 410,
    retry: "never",
    help: "Run hapax backup again: it goes on with what it has. A backup ends after a minute without a request, and on a full disk.",
  },
  stream_replaced: {
    status: 410,
    retry: "never",
    help: "Nothing of the new stream was read. Read it from its beginning, with a new position.",
  },
  offset_beyond_tail: {
    status: 410,
    retry: "never",
    help: "The stream was created anew since the offset was handed out: read it from the start.",
  },
  offset_trimmed: {
    status: 410,
    retry: "never",
    help: "Go on at Stream-Earliest-Offset, and treat what was before it as lost to this reader.",
  },
  position_lost: {
    status: 410,
    retry: "never",
    help: "Compare what was published with the business data, then do what the message says.",
  },
  data_needed: {
    status: 409,
    retry: "never",
    help: "Trim less, wait until it was read, or send needed=drop.",
  },
  tail_moved: {
    status: 412,
    retry: "never",
    help: "Read up to Stream-Next-Offset, decide again, and send that offset in If-Match.",
  },
  stream_present: {
    status: 412,
    retry: "never",
    help: "Use another path, or leave out If-None-Match to accept it.",
  },
  body_too_large: {
    status: 413,
    retry: "never",
    help: "Split it; --body-bytes-max raises the limit.",
  },
  uri_too_long: {
    status: 414,
    retry: "never",
    help: "Use a shorter stream path.",
  },
  unsupported_encoding: {
    status: 415,
    retry: "never",
    help: "Send it in one of the codings of Accept-Encoding in this answer, or without Content-Encoding.",
  },
  webhook_url_rejected: {
    status: 400,
    retry: "never",
    help: "Use a public https:// URL, or http://localhost during development.",
  },
  host_not_served: {
    status: 421,
    retry: "never",
    help: "Use the address that the server prints, or start it with --public-url and the URL that clients use.",
  },
  key_reused: {
    status: 422,
    retry: "never",
    help: "Use a new key for every message, and the same one for its retries only.",
  },
  producer_seq_reused: {
    status: 422,
    retry: "never",
    help: "Two writers share one producer id, or one forgot its number. Nothing was stored: use a new id, epoch or session.",
  },
  key_expired: {
    status: 422,
    retry: "never",
    help: "Find out whether it was stored before you send it under a new key.",
  },
  headers_too_large: {
    status: 431,
    retry: "never",
    help: "Send fewer or shorter headers.",
  },
  too_many: {
    status: 429,
    retry: "later",
    help: "Wait as long as Retry-After says, then repeat the call.",
  },
  quota_exceeded: {
    status: 429,
    retry: "later",
    help: "Nothing was done. Wait as long as Retry-After says, then repeat the call; the answer names the quota.",
  },
  key_window_full: {
    status: 429,
    retry: "later",
    help: "Wait as long as Retry-After says, or use a larger Stream-Key-Max.",
  },
  internal: {
    status: 500,
    retry: "later",
    help: "The outcome is unknown: repeat the call with the same identity, and report the fault.",
  },
  ...STORE_ERRORS,
  shutting_down: {
    status: 503,
    retry: "later",
    help: "Repeat the call when it is back.",
  },
  store_closed: {
    status: 503,
    retry: "never",
    help: "Open it again.",
  },
  schema_newer: {
    status: 503,
    retry: "never",
    help: "Update this program; nothing was changed.",
  },
  store_full: {
    status: 507,
    retry: "later",
    help: "Nothing was stored. Free space; the server goes on by itself.",
  },
  storage_quota_exceeded: {
    status: 507,
    retry: "later",
    help: "Nothing was stored. Delete streams, or have the quota raised; the answer names it.",
  },
  invalid_options: {
    status: 500,
    retry: "never",
    help: "Correct the fields that the message names.",
  },
  authentication_unavailable: {
    status: 503,
    retry: "later",
    help: "Repeat the call after Retry-After; nothing was done.",
  },
  unreachable: {
    status: 503,
    retry: "later",
    help: "Check the URL and that the server runs; the outcome of a write is unknown.",
  },
  refused: {
    status: 400,
    retry: "never",
    help: "Another server or a proxy has answered. The message has its status and its text.",
  },
  unsupported: {
    status: 501,
    retry: "never",
    help: "Nothing was sent. Use a server with this extension, or a call that needs less.",
  },
  producer_full: {
    status: 429,
    retry: "same",
    help: "Nothing was taken. Wait for `producer.ready`, then append again.",
  },
  producer_closed: {
    status: 409,
    retry: "never",
    help: "Make a new one with `stream.producer()`.",
  },
} as const satisfies Record<string, ErrorSpec>;

/** One of the codes of `ERRORS`: the only part of an error that programs should look at. */
export type ErrorCode = keyof typeof ERRORS;
/** Whether to repeat a refused call: as it is, after a pause, or not at all. */
export type RetryAdvice = ErrorSpec["retry"];
