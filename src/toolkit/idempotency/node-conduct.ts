/**
 * Runs work whose answer goes through a response of `node:http`: to its end, then commits it, and only then answers.
 *
 *   - an answer that was not committed is dropped; its client gets a problem, or the answer of the error handler;
 *   - a client that goes away changes nothing: the work goes on, and its answer is kept.
 */

import type { ServerResponse } from "node:http";
import { isHapaxError } from "../../base/errors.ts";
import { type HttpAnswer, problemOf } from "./answer.ts";
import { HeldAnswer, sendNodeAnswer } from "./node-answer.ts";
import type { Run } from "./run.ts";

/** Runs the work, holds its answer back, and sends it when it is committed. Rejects with the error. */
export async function conduct<Tx>(
  onError: (error: unknown) => void,
  run: Run<Tx>,
  response: ServerResponse,
  work: () => Promise<boolean>,
  isFailure: (answer: HttpAnswer) => boolean = () => false,
  held = new HeldAnswer(response),
): Promise<void> {
  let answer: HttpAnswer;
  try {
    answer = await new Promise((resolve, reject) => {
      let isAnswered = false;
      held.abort = reject;
      held.ended.then((ended) => {
        isAnswered = true;
        resolve(ended);
      }, reject);
      const failed = (error: unknown): void => {
        // The end of the response is the end of the work: a later failure can change nothing any more.
        if (isAnswered) onError(error);
        else reject(error as Error); // The caller gets what the handler has thrown.
      };
      work().then((isDone) => {
        if (isDone && !held.isEnded) endOf(held, response).then(resolve, failed);
      }, failed);
    });
  } catch (error) {
    await run.fail(error);
    const lost = run.answerTo(error);
    if (lost !== undefined) {
      held.replace(lost);
      return;
    }
    held.drop();
    throw error;
  } finally {
    held.abort = undefined;
  }
  if (isFailure(answer)) {
    await run.fail(new Error(`the handler has answered status=${answer.status}`));
    held.send([]);
    return;
  }
  let final: HttpAnswer;
  try {
    final = await run.finish(answer);
  } catch (error) {
    held.drop();
    throw error;
  }
  if (final.body === answer.body) {
    held.send(final.headers.slice(answer.headers.length));
    return;
  }
  held.replace(final);
}

/** Returns whether the handler is over: one that returns no promise may answer at any time. */
export async function isOver(returned: unknown): Promise<boolean> {
  await returned;
  return isThenable(returned);
}

function isThenable(value: unknown): boolean {
  return typeof value === "object" && value !== null && "then" in value;
}

/** Waits for the answer. Rejects when the client has gone and the handler is over without an answer. */
function endOf(held: HeldAnswer, response: ServerResponse): Promise<HttpAnswer> {
  if (held.isEnded) return held.ended;
  return new Promise((resolve, reject) => {
    const gone = (): void => {
      reject(new Error("the client has gone, and the handler has ended without an answer"));
    };
    if (response.closed) gone();
    response.once("close", gone);
    held.ended.then(resolve, reject).finally(() => response.off("close", gone));
  });
}

/** Answers an unexpected error, without internal details. */
export function sendFailure(response: ServerResponse, error: unknown): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const answer = isHapaxError(error)
    ? problemOf(error.code, error.message)
    : problemOf("internal", "the server has logged the cause", { retryAfterMs: 1000 });
  sendNodeAnswer(response, answer);
}
