/**
 * Finds out what the other side is: a Hapax server, with sessions, keys and conditions, or any other server of
 * the protocol. The client asks, and never assumes.
 *
 *   - the question stores nothing on any server: an append without a body, which all refuse. It has no header
 *     of ours: a browser would have to ask for permission first, and other servers would not give it;
 *   - only a refusal with our problem type (PROTOCOL.md §10) proves a Hapax server. After every other answer the client
 *     uses the public protocol, which Hapax servers have as well: a wrong guess
 *     costs speed and extensions, never a record. An answer that was cut, or that means "later", proves nothing.
 */

import { HapaxError } from "../base/error-codes.ts";
import { isRepeatable } from "../base/repeatable.ts";
import { type Caller, answeredRefusal, refusalIn } from "./attempt.ts";
import { type Codec, codecOf } from "./records.ts";
import { type StreamHead, headOf } from "./head.ts";
import type { ClientAnswer } from "./transport.ts";

/** After so many cut answers in a row the client gives up the question. */
const CUTS_MAX = 9;

/** One stream at one server, with the facts that the client needs before it writes. */
export class Peer {
  declare readonly caller: Caller;
  declare readonly url: string;
  #codec: Codec | undefined;
  #isOurs: boolean | undefined;
  #head: StreamHead | undefined;

  constructor(caller: Caller, url: string) {
    this.caller = caller;
    this.url = url;
    const { contentType } = caller.options;
    if (contentType !== undefined) this.#codec = codecOf(contentType);
  }

  /** Remembers the description of the stream. */
  learn(head: StreamHead): void {
    if (head.contentType !== "") this.#codec = codecOf(head.contentType);
    this.#head = head;
  }

  /** The codec, if it is known already. */
  get knownCodec(): Codec | undefined {
    return this.#codec;
  }

  async codec(signal?: AbortSignal): Promise<Codec> {
    if (this.#codec === undefined) await this.head(signal);
    if (this.#codec !== undefined) return this.#codec;
    throw new HapaxError("refused", `answer without Content-Type url=${this.url}`);
  }

  /** Returns the stream's window of keys; `undefined` means the server's default. */
  async keyWindowSeconds(signal?: AbortSignal): Promise<number | undefined> {
    if (this.#head === undefined) await this.head(signal);
    return this.#head?.keyWindowSeconds;
  }

  /** Asks for the description of the stream, and remembers it. */
  async head(signal?: AbortSignal): Promise<StreamHead> {
    const head = headOf(await this.ask({}, signal));
    this.learn(head);
    return head;
  }

  /** Sends `HEAD`, and returns the answer. */
  async ask(
    headers: Readonly<Record<string, string>>,
    signal?: AbortSignal,
  ): Promise<ClientAnswer> {
    const call = { method: "HEAD", url: this.url, headers, signal };
    const { answer } = await this.caller.untilAnswered(call);
    const error = await refusalIn(answer);
    if (error !== undefined) throw error;
    return answer;
  }

  /** Returns whether this is a Hapax server. Asks once. */
  async isOurs(signal?: AbortSignal): Promise<boolean> {
    if (this.#isOurs !== undefined) return this.#isOurs;
    const call = { method: "POST", url: this.url, signal };
    for (let cuts = 1; ; cuts += 1) {
      const { answer } = await this.caller.untilAnswered(call);
      const { error, isOurs, isCut } = await answeredRefusal(answer);
      if (isRepeatable(answer.status) || answer.status === 401 || cuts > CUTS_MAX) throw error;
      if (!isCut) {
        // Another refusal, such as of a token, proves nothing: the next writer asks again.
        if (isOurs || answer.status === 400) this.#isOurs = isOurs;
        return isOurs;
      }
      await this.caller.pause(cuts, signal);
    }
  }

  /** Throws `unsupported` unless this is a Hapax server: others do not have the extension. */
  async require(extension: string, signal?: AbortSignal): Promise<void> {
    if (await this.isOurs(signal)) return;
    throw new HapaxError("unsupported", `no ${extension} at this server`);
  }
}
