/**
 * What the other side is: one of our servers, with sessions, keys and conditions, or any other server of
 * the protocol. Found out, never assumed.
 *
 *   PE1  the question stores nothing on any server: an append without a body, which all refuse. It has no header
 *        of ours, which a browser would have to ask for first, and other servers would not allow;
 *   PE2  only a refusal in our own words (the problem type, PROTOCOL.md §10) makes it one of ours. Whatever else
 *        is answered, the client does with the public protocol, which ours speak as well: an error here
 *        costs speed and extensions, never a record.
 */

import { HapaxError } from "../errors.ts";
import { type Caller, problemOf, refusalOf } from "./attempt.ts";
import { type Codec, codecOf } from "./records.ts";
import { type StreamHead, headOf } from "./head.ts";

/** One stream at one server: what the client needs to know before it writes. */
export class Peer {
  readonly caller: Caller;
  readonly url: string;
  #codec: Codec | undefined;
  #isOurs: boolean | undefined;
  #keyWindowSeconds: number | undefined;
  #isLearnt = false;

  constructor(caller: Caller, url: string) {
    this.caller = caller;
    this.url = url;
    const { contentType } = caller.settings;
    if (contentType !== undefined) this.#codec = codecOf(contentType);
  }

  /** Remembers what an answer said of the stream. */
  learn(head: StreamHead): void {
    if (head.contentType !== "") this.#codec = codecOf(head.contentType);
    this.#keyWindowSeconds = head.keyWindowSeconds;
    this.#isLearnt = true;
  }

  /** The codec, if it is known already. */
  get knownCodec(): Codec | undefined {
    return this.#codec;
  }

  async codec(): Promise<Codec> {
    if (this.#codec === undefined) this.learn(await this.head());
    if (this.#codec !== undefined) return this.#codec;
    throw new HapaxError("refused", `the server names no Content-Type of url=${this.url}`);
  }

  /** What the stream says of its window of keys; `undefined`: the server's default. */
  async keyWindowSeconds(): Promise<number | undefined> {
    if (!this.#isLearnt) this.learn(await this.head());
    return this.#keyWindowSeconds;
  }

  async head(signal?: AbortSignal): Promise<StreamHead> {
    const call = { method: "HEAD", url: this.url, ...(signal === undefined ? {} : { signal }) };
    const { answer } = await this.caller.untilAnswered(call);
    if (answer.status !== 200) throw await refusalOf(answer);
    answer.discard();
    return headOf(answer);
  }

  /** PE1, PE2. Asked once. */
  async isOurs(): Promise<boolean> {
    if (this.#isOurs !== undefined) return this.#isOurs;
    const call = { method: "POST", url: this.url };
    const { answer } = await this.caller.untilAnswered(call);
    const { isOurs } = await problemOf(answer);
    // Another refusal, such as of a token, says nothing of the server: the next writer asks again.
    if (isOurs || answer.status === 400) this.#isOurs = isOurs;
    return isOurs;
  }

  /** Throws `unsupported` for what only our servers keep. */
  async require(extension: string): Promise<void> {
    if (await this.isOurs()) return;
    throw new HapaxError("unsupported", `the server does not have ${extension} url=${this.url}`);
  }
}
