/** Transactions: several things at once, or nothing; and what became of one. PROTOCOL.md §19. */

import { SENT } from "../../protocol/headers.ts";
import { digestContent } from "../core/content-digest.ts";
import type { UnfitOperation } from "../core/transaction-state.ts";
import type { KeyClaim } from "../core/keys.ts";
import { NO_NAME } from "../core/scoped-name.ts";
import type { Access } from "../access/access.ts";
import type {
  TransactionCommitted,
  TransactionCommand,
  TransactionIdentity,
  TransactionResult,
} from "../engine/transactions.ts";
import { HapaxError } from "../../base/errors.ts";
import { encodeKey } from "../../protocol/idempotency-key.ts";
import { encodeAppendRefusal } from "../../protocol/append-refusal.ts";
import { parseEncoding } from "../../protocol/content-encoding.ts";
import type { HeaderGetter } from "../../protocol/headers.ts";
import { keyBytes, type KeyHead, markOf } from "../../protocol/key.ts";
import { invalid } from "../../protocol/refusal.ts";
import {
  type IdentityHead,
  type OperationRequest,
  parseIdentity,
  parseTransaction,
  resolveOperations,
} from "../../protocol/transaction.ts";
import { encodeCommitted, encodeOperationRefusal } from "../../protocol/transaction-answer.ts";
import { decodePercent, parseQuery } from "../../protocol/values.ts";
import type { AuditFacts } from "./audit.ts";
import type { ServerAnswer, Exchange, WholeAnswer } from "./exchange.ts";
import { findShownGroup } from "./following.ts";
import { incarnationHeader, requireIncarnation } from "./incarnations.ts";
import { json, queryText } from "./json.ts";
import type { ServerParts } from "./parts.ts";
import { refuse } from "./problem.ts";
import { readRequestBody } from "./request-body.ts";
import { readRoute, type Route, type RouteCall } from "./route.ts";
import { checkAppend, codingsOf, decodeBody } from "./streams.ts";

const TRANSACTIONS_PATH = "/_hapax/transactions";
/**
 * A transaction uses up an identity, and a producer's epoch fences. So its sender needs a right to write, also if it only expects
 * something.
 */
const OPERATION_NEEDS = ["append", "create", "close", "consume", "subscribe"] as const;

export const TRANSACTION_ROUTES: readonly Route[] = [
  {
    path: TRANSACTIONS_PATH,
    methods: {
      POST: {
        needs: OPERATION_NEEDS,
        countsItself: true,
        handle: commit,
      },
    },
    allow: "POST, OPTIONS",
  },
  readRoute(`${TRANSACTIONS_PATH}/{identity...}`, {
    needs: OPERATION_NEEDS,
    handle: find,
  }),
];

async function commit(call: RouteCall): Promise<ServerAnswer> {
  const { exchange, parts, access, ticket } = call;
  requireIncarnation(call);
  const head = parseIdentity((name) => exchange.header(name));
  checkProducer(access, head);
  const coding = parseEncoding((name) => exchange.header(name), parts.decoding);
  const { bodyBytesMax } = parts.options;
  ticket?.checkHead(exchange, bodyBytesMax);
  const allowance = await ticket?.allowance();
  const sent = await readRequestBody(call, bodyBytesMax);
  const body = coding === undefined ? sent : await decodeBody(call, coding, sent);
  const parsed = parseTransaction(exchange.header("content-type"), body, bodyBytesMax);
  if (parsed.kind === "refused") return refuse(parsed.refusal);
  for (const operation of parsed.operations) checkOperation(access, head, operation);
  checkHere(call, parsed.operations);
  ticket?.takeAppends(countWrites(parsed.operations), body.length);
  const identity = await identify(parts, access, head, body);
  const scope = await scopeOperations(parts, access, parsed.operations);
  const unfit = await checkTokens(parts, scope());
  const { transactions } = parts.engine;
  // From here to the decision nothing waits, so that the streams are those that were looked at.
  const read = (): TransactionCommand => {
    const operations = resolveOperations(scope(), unfit, (stream) =>
      transactions.contentTypeOf(stream),
    );
    let bytes = 0;
    for (const operation of operations) {
      if (operation.kind === "append") bytes += operation.data.length;
    }
    return { identity, operations, bytes, allowance };
  };
  const outcome = await transactions.commit(read, parts.random.id());
  const answered = answer(outcome, auditOf(parsed.operations));
  const headers = { ...answered.headers, ...codingsOf(parts), ...incarnationHeader(parts) };
  return { ...answered, headers };
}

/** Operations that count as appends; a transaction counts as one at least. */
function countWrites(operations: readonly OperationRequest[]): number {
  let writes = 0;
  for (const { kind } of operations) {
    if (kind === "append" || kind === "create" || kind === "close") writes += 1;
  }
  return Math.max(1, writes);
}

/** Streams that a transaction creates or closes. */
function auditOf(operations: readonly OperationRequest[]): AuditFacts {
  const acts = operations.flatMap((operation) => {
    if (operation.kind === "create")
      return [{ act: "stream.create", target: operation.command.name }];
    const isClose = operation.kind === "close" || (operation.kind === "append" && operation.closes);
    return isClose ? [{ act: "stream.close", target: operation.stream }] : [];
  });
  return { acts };
}

function answer(outcome: TransactionResult, audit: AuditFacts): WholeAnswer {
  if (outcome.kind === "committed") {
    const committed = answerCommitted(outcome);
    return { ...committed, audit: outcome.isDuplicate ? false : audit };
  }
  if (outcome.kind === "refused") {
    return refuse(encodeOperationRefusal(outcome.operation, outcome.refusal));
  }
  return refuse(encodeAppendRefusal(outcome));
}

function answerCommitted(outcome: TransactionCommitted): WholeAnswer {
  const { body, headers } = encodeCommitted(outcome);
  const whole = json(200, body);
  return { ...whole, headers: { ...whole.headers, ...headers } };
}

/** The content of a key, or of a producer's number, is the whole request. */
async function identify(
  parts: ServerParts,
  { namespace }: Access,
  head: IdentityHead,
  body: Uint8Array | undefined,
): Promise<TransactionIdentity> {
  if (head.kind === "producer") {
    const digest = body === undefined ? undefined : digestContent(body, false);
    return { namespace, kind: "producer", claim: head.claim, digest };
  }
  return { namespace, kind: "key", claim: await claimKey(parts, head.key, body) };
}

/** Without a body the claim is good for a look only. */
async function claimKey(
  parts: ServerParts,
  key: KeyHead,
  body: Uint8Array | undefined,
): Promise<KeyClaim> {
  const keyDigest = await parts.digest(keyBytes(key.text));
  const contentDigest = body === undefined ? keyDigest : await parts.digest(body);
  return { mark: markOf(keyDigest, contentDigest, false), isContent: false, timeMs: key.timeMs };
}

/** The id of a producer orders its transactions, so a caller that is bound to others must not use it. */
function checkProducer(access: Access, head: IdentityHead): void {
  if (head.kind !== "producer") return;
  access.requireOneOf(OPERATION_NEEDS, { producer: head.claim.id });
}

function checkOperation(access: Access, head: IdentityHead, operation: OperationRequest): void {
  const producer = head.kind === "producer" ? head.claim.id : undefined;
  switch (operation.kind) {
    case "append":
      checkAppend(access, operation.stream, producer, operation.closes, operation.body.length > 0);
      return;
    case "create":
      access.require("create", { stream: operation.command.name, producer });
      return;
    case "close":
      access.require("close", { stream: operation.stream, producer });
      return;
    case "commit":
    case "done":
    case "expect_lease": {
      const { group, stream } = operation.lease;
      access.require("consume", { group, stream, producer });
      return;
    }
    case "ack":
      access.require("subscribe", { subscription: operation.subscription, producer });
      return;
    case "expect_tail":
    case "expect_absent":
      access.require("read", { stream: operation.stream });
      return;
    default:
      operation satisfies never;
  }
}

/** Streams that are created here are streams of this server, and it has the parts that the operations need. */
function checkHere({ exchange, parts }: RouteCall, operations: readonly OperationRequest[]): void {
  for (const operation of operations) {
    if ("lease" in operation) parts.engine.requireGroups();
    if (operation.kind === "create") parts.checkPlace?.(operation.command.name, exchange);
  }
}

/** Operations as the engine keeps their names. Groups are shown or hidden as they are at the moment of the call. */
async function scopeOperations(
  parts: ServerParts,
  access: Access,
  operations: readonly OperationRequest[],
): Promise<() => readonly OperationRequest[]> {
  if (access.isUnlimited) return () => operations;
  const groups = new Map<string, () => string>();
  for (const operation of operations) {
    if (!("lease" in operation) || groups.has(operation.lease.group)) continue;
    const { group } = operation.lease;
    groups.set(group, await findShownGroup(parts, access, "consume", group));
  }
  const scope = (operation: OperationRequest): OperationRequest => {
    if ("lease" in operation) {
      const { lease } = operation;
      const group = groups.get(lease.group)?.() ?? NO_NAME;
      return { ...operation, lease: { ...lease, group } };
    }
    if (operation.kind !== "ack") return operation;
    return { ...operation, subscription: access.scoped(operation.subscription) };
  };
  return () => operations.map(scope);
}

/** Acks whose token is not good are refused in their place. */
async function checkTokens(
  parts: ServerParts,
  requests: readonly OperationRequest[],
): Promise<ReadonlyMap<number, UnfitOperation>> {
  const unfit = new Map<number, UnfitOperation>();
  for (const [index, request] of requests.entries()) {
    if (request.kind !== "ack") continue;
    const { subscription, token, wake } = request;
    const refusal = await parts.engine.subscriptions.checkToken(subscription, token, wake);
    if (refusal !== undefined) {
      unfit.set(index, { kind: "unfit", reason: { kind: TOKEN_REASONS[refusal.kind] } });
    }
  }
  return unfit;
}

const TOKEN_REASONS = {
  token_invalid: "token_invalid",
  token_expired: "token_expired",
  wrong_type: "token_invalid",
  missing: "subscription_missing",
  fenced: "subscription_fenced",
} as const;

async function find({ exchange, parts, access, params }: RouteCall): Promise<ServerAnswer> {
  const head = parseIdentity(identityInTarget(exchange, params[0] ?? ""));
  checkProducer(access, head);
  const identity = await identify(parts, access, head, undefined);
  const outcome = await parts.engine.transactions.find(identity);
  switch (outcome.kind) {
    case "committed":
      // One that the caller could not have sent is not there for this caller.
      if (!mayKnow(access, outcome)) throw unknownTransaction();
      return answerCommitted(outcome);
    case "missing":
      throw unknownTransaction();
    case "fenced":
      return refuse(encodeAppendRefusal(outcome));
  }
}

function mayKnow(access: Access, { operations = [] }: TransactionCommitted): boolean {
  return operations.every(
    (outcome) =>
      outcome === undefined ||
      OPERATION_NEEDS.some((action) => access.may(action, { stream: outcome.stream })),
  );
}

function unknownTransaction(): HapaxError {
  return new HapaxError("transaction_not_found", "no such transaction is committed now");
}

/** A target names an identity as the headers would. */
function identityInTarget(exchange: Exchange, encoded: string): HeaderGetter {
  const text = decodePercent(encoded);
  if (text === undefined || text === "") {
    throw invalid("the identity in the path", "is not percent-encoded text");
  }
  const query = parseQuery(exchange.query);
  const [sequence, epoch, session] = ["seq", "epoch", "session"].map((name) =>
    queryText(query, name),
  );
  const isKey = sequence === undefined && epoch === undefined && session === undefined;
  const headers = new Map<string, string | undefined>(
    isKey
      ? [[SENT.idempotencyKey, encodeKey(text) ?? text]]
      : [
          [SENT.producerId, text],
          [SENT.producerSeq, sequence],
          [SENT.producerEpoch, epoch],
          [SENT.producerSession, session],
        ],
  );
  return (name) => headers.get(name);
}
