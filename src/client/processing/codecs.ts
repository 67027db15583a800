/** The media types of the streams of a server. The client asks once for each stream. */

import { assert } from "../../base/assert.ts";
import type { Caller } from "../attempt.ts";
import { refusalOf } from "../attempt.ts";
import { headOf } from "../head.ts";
import { type Codec, codecOf } from "../records.ts";
import type { Addresses, StreamTarget } from "./paths.ts";

/** Streams whose type is remembered: about 100 bytes each. */
const KNOWN_MAX = 10_000;

/** The codecs of each connection. Not a member of it, because only pipelines ask. */
const lent = new WeakMap<object, (target: StreamTarget) => Codec | undefined>();

/** Lets pipelines of a connection use the known types of its streams. */
export function lendCodecs(connection: object, addresses: Addresses, codecs: Codecs): void {
  lent.set(connection, (target) => codecs.known(addresses.pathOf(target)));
}

/** Returns the codec of a stream of the connection, if it is known. Throws `invalid_request` for one of another server. */
export function knownCodec(connection: object, target: StreamTarget): Codec | undefined {
  return lent.get(connection)?.(target);
}

export class Codecs {
  readonly #caller: Caller;
  readonly #addresses: Addresses;
  readonly #known = new Map<string, Codec>();
  readonly #asking = new Map<string, Promise<Codec>>();

  constructor(caller: Caller, addresses: Addresses) {
    this.#caller = caller;
    this.#addresses = addresses;
  }

  known(path: string): Codec | undefined {
    const { contentType } = this.#caller.options;
    return this.#known.get(path) ?? (contentType === undefined ? undefined : codecOf(contentType));
  }

  learn(path: string, contentType: string): Codec {
    const codec = codecOf(contentType);
    if (this.#known.size >= KNOWN_MAX) {
      const [oldest] = this.#known.keys();
      if (oldest !== undefined) this.#known.delete(oldest);
    }
    this.#known.set(path, codec);
    assert(this.#known.size <= KNOWN_MAX, "more types are remembered than allowed");
    return codec;
  }

  /** Forgets the type of a stream: another stream may be at the path by now. */
  forget(path: string): void {
    this.#known.delete(path);
  }

  /** Asks for the type of a stream. Calls at the same time share one request. */
  get(path: string, signal: AbortSignal | undefined): Promise<Codec> {
    const known = this.known(path);
    if (known !== undefined) return Promise.resolve(known);
    let asking = this.#asking.get(path);
    if (asking === undefined) {
      asking = this.#ask(path).finally(() => this.#asking.delete(path));
      this.#asking.set(path, asking);
    }
    return new Promise((resolve, reject) => {
      const giveUp = (): void => {
        unlisten();
        reject(this.#caller.abortedBy(signal) ?? new Error("aborted"));
      };
      const unlisten = this.#caller.onAbort(signal, giveUp);
      asking.then(resolve, reject).finally(unlisten);
      if (this.#caller.abortedBy(signal) !== undefined) giveUp();
    });
  }

  async #ask(path: string): Promise<Codec> {
    const call = { method: "HEAD", url: this.#addresses.stream(path) };
    const { answer } = await this.#caller.untilAnswered(call);
    if (answer.status !== 200) throw await refusalOf(answer);
    answer.discard();
    return this.learn(path, headOf(answer).contentType);
  }
}
