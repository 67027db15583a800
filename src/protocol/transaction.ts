/**
 * Transactions on the wire: parses headers and bytes into operations. PROTOCOL.md §19.1.
 *
 *   - a body of the framed form is a view of the request's own bytes: nothing is copied or changed;
 *   - an error of an operation carries its index, and comes before any decision;
 *   - the bodies of the framed form use up the request exactly;
 *   - `resolveOperations` finds out what depends on the state of a stream, in the step of the decision, and
 *     refuses it in its place. A retry is recognised before that, for any later state of the streams.
 */

import { HEADER } from "./headers.ts";
import { CONTENT_TYPE_DEFAULT } from "../streams/core/create.ts";
import type { ProducerClaim } from "../streams/core/producer.ts";
import { isJson } from "../streams/core/stream.ts";
import type { Operation, UnfitOperation } from "../streams/core/transaction-state.ts";
import type { StreamName } from "../streams/core/types.ts";
import { HapaxError, isHapaxError } from "../base/errors.ts";
import { LIMITS } from "./all-limits.ts";
import { parseAppendHead, parseRecords } from "./append.ts";
import type { HeaderGetter } from "./headers.ts";
import { splitJson } from "./json.ts";
import { readJsonShape } from "./json-grammar.ts";
import type { KeyHead } from "./key.ts";
import { Members } from "./members.ts";
import { invalid, type Refusal } from "./refusal.ts";
import { splitFrame, TRANSACTION_TYPE } from "./transaction-frame.ts";
import {
  type AppendRequest,
  Bodies,
  type OperationRequest,
  parseOperation,
} from "./transaction-operation.ts";
import { normaliseContentType } from "./values.ts";

export type { OperationRequest } from "./transaction-operation.ts";

const JSON_TYPE = "application/json";

/** The identity in the headers. A key is not hashed yet. */
export type IdentityHead =
  | { readonly kind: "producer"; readonly claim: ProducerClaim }
  | { readonly kind: "key"; readonly key: KeyHead };

export function parseIdentity(header: HeaderGetter): IdentityHead {
  const head = parseAppendHead(header);
  // To ignore a condition would be worse than to refuse it.
  if (head.expectedTail !== undefined) throw invalid("If-Match", "is no part of a transaction");
  if (head.streamSeq !== undefined) throw invalid(HEADER.streamSeq, "is no part of a transaction");
  if (head.closes) throw invalid(HEADER.closed, "is no part of a transaction");
  if (head.producer !== undefined) return { kind: "producer", claim: head.producer };
  if (head.key !== undefined) return { kind: "key", key: head.key };
  throw new HapaxError(
    "identity_missing",
    "send Idempotency-Key, or Producer-Id and Producer-Seq with Producer-Epoch or Producer-Session",
  );
}

export type ParsedTransaction =
  | { readonly kind: "operations"; readonly operations: readonly OperationRequest[] }
  | { readonly kind: "refused"; readonly refusal: Refusal };

/** Parses a transaction. `bytesMax` limits all bodies of appends together. */
export function parseTransaction(
  contentType: string | undefined,
  body: Uint8Array,
  bytesMax: number,
): ParsedTransaction {
  const essence = contentType === undefined ? "" : normaliseContentType(contentType)?.essence;
  if (essence !== JSON_TYPE && essence !== TRANSACTION_TYPE) {
    throw invalid("Content-Type", `is neither ${JSON_TYPE} nor ${TRANSACTION_TYPE}`);
  }
  const isFramed = essence === TRANSACTION_TYPE;
  const { head, rest } = isFramed ? splitFrame(body) : { head: body, rest: undefined };
  const entries = parseHead(head);
  const bodies = new Bodies(rest);
  const operations: OperationRequest[] = [];
  for (const [index, entry] of entries.entries()) {
    try {
      operations.push(parseOperation(entry, bodies));
    } catch (error) {
      if (!isHapaxError(error)) throw error;
      return { kind: "refused", refusal: operationRefusal(index, error) };
    }
  }
  if (bodies.left > 0) throw invalid("the request", `has ${bodies.left} bytes after the bodies`);
  if (bodies.taken > bytesMax) {
    throw new HapaxError(
      "body_too_large",
      `the bodies of all appends have at most ${bytesMax} bytes`,
    );
  }
  return { kind: "operations", operations };
}

function operationRefusal(operation: number, error: HapaxError): Refusal {
  const detail = `operation ${operation}: ${error.message}`;
  return { code: error.code, detail, facts: { operation } };
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function parseHead(head: Uint8Array): readonly unknown[] {
  const shape = readJsonShape(head);
  // The depth is checked before anything recurses over the values.
  if (shape === undefined) {
    const split = splitJson(head);
    const reason = split.kind === "invalid" ? split.reason : "it is not JSON";
    throw new HapaxError("invalid_json", reason);
  }
  const operations = new Members(parseText(head), "the body").list("operations", (entry) => entry);
  const max = LIMITS.transactionOperationsMax;
  if (operations.length === 0 || operations.length > max) {
    throw invalid("operations", `has not 1 to ${max} entries`);
  }
  return operations;
}

function parseText(head: Uint8Array): unknown {
  try {
    return JSON.parse(utf8.decode(head));
  } catch (cause) {
    throw new HapaxError("invalid_json", "the body is not valid UTF-8", { cause });
  }
}

/** Operations that were found unfit before, by their index: acks without a valid token. */
export type Unfit = ReadonlyMap<number, UnfitOperation>;

/** `typeOf` returns the content type of a stream at this moment. */
export function resolveOperations(
  requests: readonly OperationRequest[],
  unfit: Unfit,
  typeOf: (stream: StreamName) => string | undefined,
): readonly Operation[] {
  const created = new Map<StreamName, string>();
  return requests.map((request, index) => {
    const found = unfit.get(index);
    if (found !== undefined) return found;
    if (request.kind === "append") {
      const { stream, contentType } = request;
      return resolveAppend(request, contentType ?? created.get(stream) ?? typeOf(stream));
    }
    if (request.kind === "ack") {
      const { kind, subscription, wake, acks, isDone } = request;
      return { kind, subscription, wake, acks, isDone };
    }
    if (request.kind === "create") {
      const { name, contentType = CONTENT_TYPE_DEFAULT } = request.command;
      created.set(name, contentType);
    }
    return request;
  });
}

/** Returns the bytes to store. Without a type there is no stream, and the decision refuses it. */
function resolveAppend(request: AppendRequest, type: string | undefined): Operation {
  const { kind, stream, contentType, body, isData, closes } = request;
  if (type === undefined || body.length === 0) {
    return { kind, stream, contentType, data: body, closes };
  }
  if (isData && !isJson(type))
    return { kind: "unfit", reason: { kind: "not_json", expected: type } };
  try {
    const data = parseRecords(type, body);
    if (data.length > 0) return { kind, stream, contentType, data, closes };
    return { kind: "unfit", reason: { kind: "invalid_json", detail: "the array has no elements" } };
  } catch (error) {
    if (!isHapaxError(error, "invalid_json")) throw error;
    return { kind: "unfit", reason: { kind: "invalid_json", detail: error.message } };
  }
}
