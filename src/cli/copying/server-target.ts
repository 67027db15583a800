/**
 * A stream of a server, as the target of a copy.
 *
 *   - an append names the source as its producer and the source's offset behind it as its epoch: how far the copy is
 *     stands in the target, in the same commit as the data, and a run needs nothing but the two servers;
 *   - each append names the tail it goes to. So of two runs, of which one was thought dead, each byte is stored by one;
 *   - a target whose end is not the end of such an append has data that is not of this copy, and is refused.
 */

import { splitLife } from "../../base/incarnation.ts";
import {
  PRODUCER_EPOCH,
  PRODUCER_ID,
  PRODUCER_NEXT_OFFSET,
  PRODUCER_SEQ,
  PRODUCER_SEQ_REUSED,
  STREAM_CLOSED,
  STREAM_EARLIEST_OFFSET,
  STREAM_NEXT_OFFSET,
} from "../../protocol/header-names.ts";
import { CommandFailure, EXIT } from "../failure.ts";
import { type CliAnswer, refusal, sendWithRetries } from "../http.ts";
import type { Target } from "../target.ts";
import {
  asCopyFailure,
  bytesBefore,
  offsetOf,
  type CopyPage,
  producerIdOf,
  type StreamFacts,
} from "./page.ts";
import { type CopyCall, digestOf, askHead, isClosed } from "./server-source.ts";

/** Where a copy is. */
export interface TargetPlace {
  /** The offset of the source up to which the target has its data. */
  readonly end: string;
  /** Whether the target is closed. */
  readonly isClosed: boolean;
}

/** What a copy writes to. */
export interface TargetStream {
  /** Creates the stream or finds it, and says how far the copy is. */
  begin(): Promise<TargetPlace>;
  /** Stores a page. Says where the copy is then: another run may be further. */
  write(page: CopyPage): Promise<TargetPlace>;
  close(end: string): Promise<void>;
  /** Called once, when all is written. */
  finish(end: string): Promise<void>;
  /** The range of the source that the target still has, if it ends at `end`. */
  range(end: number): Promise<{ readonly from: number; readonly to: number }>;
  /** The digest of what the target has of that range. */
  digest(from: number, to: number): Promise<string | undefined>;
}

/** A stream of a server that is written to. */
export class ServerTarget implements TargetStream {
  readonly #call: CopyCall;
  readonly #target: Target;
  readonly #facts: StreamFacts;
  readonly #producerId: string;
  #tail = "";
  /** The number of a close: behind that of the last append. */
  #closeSeq = 0;

  constructor(call: CopyCall, target: Target, facts: StreamFacts) {
    this.#call = call;
    this.#target = target;
    this.#facts = facts;
    this.#producerId = producerIdOf(facts);
  }

  async begin(): Promise<TargetPlace> {
    const answer = await askHead(this.#call, this.#target, { [PRODUCER_ID]: this.#producerId });
    if (answer.status === 410) throw refusal(this.#target, answer);
    const tail = answer.header(STREAM_NEXT_OFFSET) ?? offsetOf(0);
    const epoch = answer.header(PRODUCER_EPOCH);
    if (answer.status === 200 && epoch !== undefined) {
      if (answer.header(PRODUCER_NEXT_OFFSET) !== tail) throw this.#isForeign("has other data too");
      this.#tail = tail;
      this.#closeSeq = Number(answer.header(PRODUCER_SEQ)) + 1;
      return { end: offsetOf(Number(epoch)), isClosed: isClosed(answer) };
    }
    if (answer.status === 200 && bytesBefore(tail) > 0) throw this.#isForeign("is there already");
    if (answer.status === 200 && isClosed(answer)) throw this.#isForeign("is closed already");
    await this.#create();
    this.#tail = offsetOf(0);
    this.#closeSeq = 0;
    return { end: this.#facts.from, isClosed: false };
  }

  /** Creating again what is there with the same options, and empty, changes nothing. */
  async #create(): Promise<void> {
    const { path, headers } = this.#facts;
    if (this.#facts.isContinued === true) throw this.#isForeign(`lacks the beginning of ${path}`);
    const answer = await this.#send("PUT", headers);
    if (answer.status === 409) throw this.#isForeign("is there already, with other options");
    if (answer.status !== 200 && answer.status !== 201) throw refusal(this.#target, answer);
    if (bytesBefore(answer.header(STREAM_NEXT_OFFSET) ?? "") > 0) {
      throw this.#isForeign("is there already");
    }
  }

  async write({ body, end }: CopyPage): Promise<TargetPlace> {
    const headers = {
      ...this.#identity(bytesBefore(end), 0),
      "if-match": `"${this.#tail}"`,
      "content-type": this.#facts.headers["content-type"] ?? "application/octet-stream",
    };
    const answer = await this.#send("POST", headers, body);
    if (await this.#isOvertaken(answer)) return this.begin();
    this.#tail = answer.header(STREAM_NEXT_OFFSET) ?? "";
    this.#closeSeq = 1;
    return { end, isClosed: false };
  }

  async close(end: string): Promise<void> {
    const headers = {
      ...this.#identity(bytesBefore(end), this.#closeSeq),
      "if-match": `"${this.#tail}"`,
      [STREAM_CLOSED]: "true",
    };
    const answer = await this.#send("POST", headers);
    if (!(await this.#isOvertaken(answer))) return;
    const place = await this.begin();
    if (!place.isClosed || place.end !== end) throw this.#isForeign("changes meanwhile");
  }

  async finish(): Promise<void> {}

  /** Whether another run of this copy, or a request of a run that was killed, has written in the meantime. */
  async #isOvertaken(answer: CliAnswer): Promise<boolean> {
    const isStored = answer.status === 200 || answer.status === 204;
    if (isStored && answer.header(PRODUCER_SEQ_REUSED) === undefined) return false;
    if (isStored || [403, 412].includes(answer.status)) {
      await this.#call.context.wait(OVERTAKEN_MS, this.#call.signal);
      return true;
    }
    if (answer.status === 409 && isClosed(answer)) return true;
    const failure = refusal(this.#target, answer);
    if (answer.status !== 413) throw failure;
    throw failure.withAdvice([
      "a page of the source is larger than an append of the target may be: start it with a larger --body-bytes-max",
    ]);
  }

  #identity(epoch: number, sequence: number): Record<string, string> {
    return {
      [PRODUCER_ID]: this.#producerId,
      [PRODUCER_EPOCH]: String(epoch),
      [PRODUCER_SEQ]: String(sequence),
    };
  }

  async #send(
    method: "PUT" | "POST",
    headers: Readonly<Record<string, string>>,
    body?: Uint8Array,
  ): Promise<CliAnswer> {
    const { context, retrySeconds, signal } = this.#call;
    const call = { target: this.#target, method, headers, signal };
    const whole = body === undefined ? call : { ...call, body };
    return (await sendWithRetries(context, whole, retrySeconds)).answer;
  }

  async range(end: number): Promise<{ readonly from: number; readonly to: number }> {
    const answer = await askHead(this.#call, this.#target);
    const earliest = bytesBefore(answer.header(STREAM_EARLIEST_OFFSET) ?? offsetOf(0));
    return { from: end - bytesBefore(this.#tail) + earliest, to: end };
  }

  async digest(from: number, to: number): Promise<string | undefined> {
    const tail = bytesBefore(this.#tail);
    const type = this.#facts.headers["content-type"];
    try {
      return await digestOf(this.#call, this.#target, type, tail - (to - from), tail);
    } catch (error) {
      throw asCopyFailure(error, this.#target.label);
    }
  }

  #isForeign(what: string): CommandFailure {
    const { label } = this.#target;
    const [, incarnation] = splitLife(this.#facts.life);
    const restored =
      "the source was restored from a backup: it may lack what an earlier copy has brought, and nothing is mixed";
    return new CommandFailure(EXIT.refused, `${label} ${what}: it was not made by this copy`, [
      ...(incarnation === "1" ? [] : [restored]),
      "choose another stream, or delete it; an empty stream with the same options is taken",
    ]);
  }
}

/** A pause before a look at what another run does. */
const OVERTAKEN_MS = 100;
