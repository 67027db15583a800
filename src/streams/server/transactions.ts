/** Transactions: several things at once, or nothing; and what became of one. PROTOCOL.md §19. */

import { SENT } from "../../protocol/headers.ts";
import { digestContent } from "../core/content-digest.ts";
import type { UnfitOperation } from "../core/transaction-state.ts";
import type { KeyClaim } from "../core/keys.ts";
import type {
  TransactionCommitted,
  TransactionCommand,
  TransactionIdentity,
  TransactionResult,
} from "../engine/transactions.ts";
import { HapaxError } from "../../base/errors.ts";
import { encodeKey } from "../../protocol/idempotency-key.ts";
import { encodeAppendRefusal } from "../../protocol/append-refusal.ts";
import { refuseEncoding } from "../../protocol/content-encoding.ts";
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
import type { ServerAnswer, Exchange, WholeAnswer } from "./exchange.ts";
import { json, queryText } from "./json.ts";
import type { ServerParts } from "./parts.ts";
import { methodNotAllowed, refuse } from "./problem.ts";

export const TRANSACTIONS_PATH = "/_hapax/transactions";

export function handleTransactions(
  exchange: Exchange,
  parts: ServerParts,
): ServerAnswer | Promise<ServerAnswer> {
  const { method, path } = exchange;
  if (path === TRANSACTIONS_PATH) {
    return method === "POST" ? commit(exchange, parts) : methodNotAllowed("POST, OPTIONS");
  }
  if (method !== "GET" && method !== "HEAD") return methodNotAllowed("GET, HEAD, OPTIONS");
  return find(exchange, parts, path.slice(TRANSACTIONS_PATH.length + 1));
}

async function commit(exchange: Exchange, parts: ServerParts): Promise<ServerAnswer> {
  const head = parseIdentity((name) => exchange.header(name));
  refuseEncoding((name) => exchange.header(name));
  const { bodyBytesMax } = parts.options;
  const body = await exchange.body(bodyBytesMax);
  const parsed = parseTransaction(exchange.header("content-type"), body, bodyBytesMax);
  if (parsed.kind === "refused") return refuse(parsed.refusal);
  const identity = await identify(parts, head, body);
  const unfit = await checkTokens(parts, parsed.operations);
  const { transactions } = parts.engine;
  // From here to the decision nothing waits, so that the streams are those that were looked at.
  const read = (): TransactionCommand => {
    const operations = resolveOperations(parsed.operations, unfit, (stream) =>
      transactions.contentTypeOf(stream),
    );
    let bytes = 0;
    for (const operation of operations) {
      if (operation.kind === "append") bytes += operation.data.length;
    }
    return { identity, operations, bytes };
  };
  return answer(await transactions.commit(read, parts.random.id()));
}

function answer(outcome: TransactionResult): WholeAnswer {
  if (outcome.kind === "committed") return answerCommitted(outcome);
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
  head: IdentityHead,
  body: Uint8Array | undefined,
): Promise<TransactionIdentity> {
  if (head.kind === "producer") {
    return { ...head, digest: body === undefined ? undefined : digestContent(body, false) };
  }
  return { kind: "key", claim: await claimKey(parts, head.key, body) };
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

async function find(
  exchange: Exchange,
  parts: ServerParts,
  encoded: string,
): Promise<ServerAnswer> {
  const head = parseIdentity(identityInTarget(exchange, encoded));
  const identity = await identify(parts, head, undefined);
  const outcome = await parts.engine.transactions.find(identity);
  switch (outcome.kind) {
    case "committed":
      return answerCommitted(outcome);
    case "missing":
      throw new HapaxError("transaction_not_found", "no such transaction is committed now");
    case "fenced":
      return refuse(encodeAppendRefusal(outcome));
  }
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
