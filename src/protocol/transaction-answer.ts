/** Encodes the outcome of a transaction. PROTOCOL.md §19.2, §19.3. */

import type { OperationRefusal } from "../streams/core/transaction.ts";
import type { OperationOutcome } from "../streams/core/transaction-state.ts";
import { closedHeaders, encodeAppendRefusal, tailHeaders } from "./append-refusal.ts";
import { HEADER } from "./headers.ts";
import type { Refusal } from "./refusal.ts";
import { formatOffset } from "./values.ts";

export interface ShownOutcome {
  /** Undefined: the answer is no longer kept. */
  readonly operations: readonly (OperationOutcome | undefined)[] | undefined;
  readonly isDuplicate: boolean;
  readonly producer: { readonly epoch: number; readonly sequence: number } | undefined;
}

export interface CommittedAnswer {
  readonly body: { readonly status: "committed"; readonly operations: unknown };
  readonly headers: Readonly<Record<string, string>>;
}

export function encodeCommitted(outcome: ShownOutcome): CommittedAnswer {
  const { isDuplicate, producer } = outcome;
  const operations = outcome.operations?.map((each) =>
    each === undefined ? {} : { stream: each.stream, nextOffset: formatOffset(each.tail) },
  );
  const headers: Record<string, string> = {};
  if (isDuplicate) headers[HEADER.keyReplayed] = "true";
  if (producer !== undefined) {
    headers[HEADER.producerEpoch] = String(producer.epoch);
    headers[HEADER.producerSeq] = String(producer.sequence);
  }
  return { body: { status: "committed", operations: operations ?? null }, headers };
}

/** Encodes the refusal of the operation with this index. */
export function encodeOperationRefusal(operation: number, refusal: OperationRefusal): Refusal {
  const { detail, facts, ...rest } = describe(refusal);
  return { ...rest, detail: `operation ${operation}: ${detail}`, facts: { operation, ...facts } };
}

function describe(refusal: OperationRefusal): Refusal {
  switch (refusal.kind) {
    case "stream_missing":
    case "stream_gone":
    case "stream_closed":
    case "stream_present":
    case "tail_moved":
      return describeStream(refusal);
    case "content_type_mismatch":
      return encodeAppendRefusal(refusal);
    case "create_conflict":
      return { code: "stream_exists", detail: `the stream differs in ${refusal.reason}` };
    case "invalid_json":
      return { code: "invalid_json", detail: refusal.detail };
    case "not_json":
      return {
        code: "invalid_request",
        detail: `data is for JSON, the stream has ${refusal.expected}`,
      };
    case "named_twice":
      return { code: "invalid_request", detail: "an earlier operation has moved the same offset" };
    case "token_invalid":
      return { code: "token_invalid", detail: "the token is not one of this subscription" };
    case "token_expired":
      return { code: "token_expired", detail: "the token has expired" };
    case "subscription_missing":
      return { code: "subscription_not_found", detail: "there is no subscription of this id" };
    case "subscription_fenced":
      return { code: "subscription_fenced", detail: "the generation or wakeId is not current" };
    case "invalid_ack":
      return {
        code: "invalid_ack",
        detail: refusal.reason,
        facts: { stream: refusal.stream },
      };
    case "group_missing":
      return { code: "group_not_found", detail: "there is no group of this name" };
    default:
      return encodeLeaseRefusal(refusal);
  }
}

type StreamRefusal = Extract<
  OperationRefusal,
  {
    readonly kind:
      | "stream_missing"
      | "stream_gone"
      | "stream_closed"
      | "stream_present"
      | "tail_moved";
  }
>;

function describeStream(refusal: StreamRefusal): Refusal {
  const { stream } = refusal;
  switch (refusal.kind) {
    case "stream_missing":
      return { code: "stream_not_found", detail: "there is no such stream", facts: { stream } };
    case "stream_gone":
      return { code: "stream_gone", detail: "the stream was deleted", facts: { stream } };
    case "stream_closed": {
      const tail = formatOffset(refusal.tail);
      const detail = "the stream is closed";
      return {
        code: "stream_closed",
        detail,
        headers: closedHeaders(tail),
        facts: { stream, tail },
      };
    }
    case "stream_present": {
      const tail = formatOffset(refusal.tail);
      const headers = tailHeaders(refusal.tail, false);
      return {
        code: "stream_present",
        detail: "there is a stream",
        headers,
        facts: { stream, tail },
      };
    }
    case "tail_moved": {
      const tail = formatOffset(refusal.tail);
      const headers = tailHeaders(refusal.tail, false);
      return {
        code: "tail_moved",
        detail: `the tail is ${tail}`,
        headers,
        facts: { stream, tail },
      };
    }
  }
}

type LeaseRefusal = Extract<
  OperationRefusal,
  {
    readonly kind:
      | "lease_lost"
      | "member_lost"
      | "offset_regressed"
      | "beyond_tail"
      | "inside_record";
  }
>;

/** Encodes why a commit does not count. PROTOCOL.md §20.3. */
export function encodeLeaseRefusal(refusal: LeaseRefusal): Refusal {
  switch (refusal.kind) {
    case "member_lost":
      return { code: "member_lost", detail: "the member has left, or was silent for too long" };
    case "lease_lost": {
      const { streams } = refusal;
      const detail = "the token is not the current one of its stream, or of another member";
      return { code: "lease_lost", detail, facts: { streams } };
    }
    case "offset_regressed": {
      const { stream } = refusal;
      const committed = formatOffset(refusal.offset);
      const detail = `the committed offset is ${committed}`;
      return { code: "offset_regressed", detail, facts: { stream, committed } };
    }
    case "beyond_tail": {
      const { stream } = refusal;
      const tail = formatOffset(refusal.tail);
      return { code: "offset_beyond_tail", detail: `the tail is ${tail}`, facts: { stream, tail } };
    }
    case "inside_record":
      return refuseInside(refusal.stream);
  }
}

/** Makes the refusal of a position that cuts a JSON record, or an append of another content type. */
export function refuseInside(stream: string): Refusal {
  const detail = `the offset is inside a record; send one that the stream has handed out: ${JSON.stringify(stream)}`;
  return { code: "invalid_request", detail, facts: { stream } };
}
