/** An append of the lane as an Exchange: positions in the received bytes, and a body that may still be coming. */

import { HapaxError } from "../../base/errors.ts";
import type { Exchange, WholeAnswer } from "../server/exchange.ts";
import type { BodyBudget, BodyShare } from "../server/body-budget.ts";
import { BodyPieces } from "../../base/body-pieces.ts";
import { tooLarge } from "./node-exchange.ts";
import type { LaneMemory } from "./node-lane-memory.ts";
import type { HeadParser, LaneFields } from "./node-lane-parser.ts";

/** Where a memory keeps the path. The fields follow. */
const PATH_PLACE = 0;

const EMPTY = Promise.resolve(new Uint8Array(0));

interface Waiter {
  readonly resolve: (body: Uint8Array) => void;
  readonly reject: (error: unknown) => void;
}

export class LaneExchange implements Exchange {
  readonly method = "POST";
  readonly path: string;
  readonly query: string;
  /** Set when the answer is ready. It is sent after all earlier ones. */
  answer: WholeAnswer | undefined;
  received: Uint8Array | undefined;
  /** Bytes of the body that have not come yet. */
  bytesLeft: number;
  readonly #fields: LaneFields;
  readonly #publicUrl: string | undefined;
  readonly #budget: BodyBudget;
  readonly #connection: { readonly remoteAddress?: string | undefined };
  readonly #memory: LaneMemory;
  /** Known if it is the connection's last one again, or once it was asked for. */
  #authorization: string | undefined;
  readonly #length: number;
  #pieces: BodyPieces | undefined;
  #share: BodyShare | undefined;
  #waiter: Waiter | undefined;
  #failure: unknown;
  #isDropping = false;
  #isClosed = false;
  #aborts: (() => void)[] | undefined;

  constructor(
    head: Buffer,
    parser: HeadParser,
    body: Buffer | undefined,
    budget: BodyBudget,
    publicUrl: string | undefined,
    connection: { readonly remoteAddress?: string | undefined },
    memory: LaneMemory,
  ) {
    const { targetStart, queryMark, targetEnd, contentLength } = parser;
    this.path = memory.textOf(head, PATH_PLACE, targetStart, queryMark);
    this.query = queryMark === targetEnd ? "" : head.toString("latin1", queryMark + 1, targetEnd);
    this.#fields = parser.fields;
    this.#publicUrl = publicUrl;
    this.#budget = budget;
    this.#connection = connection;
    this.#memory = memory;
    this.#authorization = parser.repeatsCredential ? memory.credential : undefined;
    this.#length = contentLength;
    this.received = body;
    this.bytesLeft = body === undefined ? contentLength : 0;
  }

  get authority(): string | undefined {
    return this.header("host");
  }

  get baseUrl(): string {
    return this.#publicUrl ?? `http://${this.authority ?? "localhost"}`;
  }

  /** Asked for only when it is needed: the first time costs a call of the system. */
  get peer(): string {
    return this.#connection.remoteAddress ?? "";
  }

  get bodyBytes(): number {
    return this.#length - this.bytesLeft;
  }

  get hasBody(): boolean {
    return this.#length > 0;
  }

  header(name: string): string | undefined {
    const fields = this.#fields;
    const place = fields.find(name);
    if (place < 0) return undefined;
    const [start, end] = [fields.startOf(place), fields.endOf(place)];
    if (name !== "authorization") return this.#memory.textOf(fields.bytes, place + 1, start, end);
    this.#authorization ??= this.#memory.keepCredential(fields.bytes, start, end);
    return this.#authorization;
  }

  lines(): readonly string[] {
    return this.#fields.lines();
  }

  body(bytesMax: number): Promise<Uint8Array> {
    if (this.#length === 0) return EMPTY;
    if (this.#length > bytesMax) {
      this.drop();
      return Promise.reject(tooLarge(bytesMax));
    }
    if (this.received !== undefined) return Promise.resolve(this.received);
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    return new Promise((resolve, reject) => {
      this.#waiter = { resolve, reject };
    });
  }

  onAbort(run: () => void): void {
    if (this.#isClosed) run();
    else (this.#aborts ??= []).push(run);
  }

  /** Takes a received piece of the body, at most `bytesLeft` bytes. */
  receive(piece: Buffer): void {
    this.bytesLeft -= piece.length;
    if (this.#isDropping) return;
    this.#share ??= this.#budget.begin({ peer: this.peer, cut: (error) => this.fail(error) });
    try {
      this.#share.take(piece.length);
    } catch (error) {
      this.fail(error);
      return;
    }
    const pieces = (this.#pieces ??= new BodyPieces());
    pieces.add(piece);
    if (this.bytesLeft > 0) return;
    this.#release();
    this.received = pieces.whole();
    this.#waiter?.resolve(this.received);
  }

  /** Counts and drops the rest of the body: the handler no longer needs it. */
  drop(): void {
    this.#isDropping = true;
    this.#release();
  }

  /** The other side sends no more and may have gone. Work that waits for it can stop. */
  abort(): void {
    this.#isClosed = true;
    for (const run of this.#aborts?.splice(0) ?? []) run();
  }

  /** The other side has gone. */
  close(): void {
    this.abort();
    if (this.bytesLeft > 0 && !this.#isDropping) {
      this.fail(new HapaxError("request_timeout", "the connection ended before the body did"));
    }
  }

  /** Says that the rest of the body does not come, or is not wanted. */
  fail(error: unknown): void {
    this.drop();
    this.#failure = error;
    this.#waiter?.reject(error);
  }

  #release(): void {
    this.#share?.end();
    this.#share = undefined;
    this.#pieces = undefined;
  }
}
