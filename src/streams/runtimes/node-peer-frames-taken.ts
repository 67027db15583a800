/** The side of a connection of frames that answers: each frame is a request as the client has sent it to the other node. */

import type { TLSSocket } from "node:tls";
import type { ClientCertificate } from "../access/identity.ts";
import type { ShardId } from "../core/placement.ts";
import { HEADER } from "../../protocol/headers.ts";
import type { AnswerHeaders, Exchange, ServerAnswer, WholeAnswer } from "../server/exchange.ts";
import { FinishedAnswer } from "../server/finished-answer.ts";
import { checkHead } from "../server/request-head.ts";
import { tooLarge } from "./node-exchange.ts";
import {
  encodePeerFrame,
  FRAME,
  type PeerFrame,
  FrameReader,
  FrameWriter,
} from "./node-peer-frames.ts";
import type { SentHead } from "./node-peer-frames-sent.ts";

export interface TakenFramesParts {
  readonly handle: (shard: ShardId, exchange: Exchange) => Promise<ServerAnswer | "moved" | "lost">;
  readonly onFault: (error: unknown) => void;
}

/** Answers that the other node has not taken: then no requests are read until it has. */
const QUEUED_BYTES_MAX = 4 * 1024 * 1024;

/** Connections of frames from all nodes. */
export class TakenFrames {
  readonly #parts: TakenFramesParts;
  readonly #leaves = new Set<() => void>();

  constructor(parts: TakenFramesParts) {
    this.#parts = parts;
  }

  add(socket: TLSSocket): void {
    const running = new Map<number, FrameExchange>();
    const reader = new FrameReader();
    const writer = new FrameWriter((bytes) => {
      if (!socket.destroyed && !socket.writableEnded) socket.write(bytes);
      if (socket.writableLength > QUEUED_BYTES_MAX) socket.pause();
    });
    const answer = (id: number, given: ServerAnswer | "moved" | "lost"): void => {
      if (!running.delete(id)) return; // The wait for it has ended.
      writer.send(this.#encode(id, given));
    };
    const take = ({ kind, id, head, body }: PeerFrame): void => {
      if (kind === FRAME.abort) {
        const aborted = running.get(id);
        running.delete(id);
        aborted?.abort();
        return;
      }
      if (kind !== FRAME.request) return;
      const sent = JSON.parse(head) as SentHead;
      const exchange = new FrameExchange(sent, body);
      running.set(id, exchange);
      this.#parts.handle(sent[0] as ShardId, exchange).then(
        (given) => answer(id, given),
        (error: unknown) => {
          this.#parts.onFault(error);
          answer(id, "lost");
        },
      );
    };
    const leave = (): void => writer.send(encodePeerFrame(FRAME.leaving, 0));
    this.#leaves.add(leave);
    socket.on("drain", () => socket.resume());
    socket.on("data", (chunk: Buffer) => {
      try {
        reader.push(chunk, take);
      } catch (error) {
        this.#parts.onFault(error);
        socket.destroy();
      }
    });
    socket.on("error", () => undefined); // `close` follows.
    socket.once("close", () => {
      this.#leaves.delete(leave);
      for (const exchange of running.values()) exchange.abort();
      running.clear();
    });
  }

  /** Asks all nodes to end their connections when they have their answers. */
  leave(): void {
    for (const leave of this.#leaves) leave();
  }

  #encode(id: number, given: ServerAnswer | "moved" | "lost"): readonly Uint8Array[] {
    if (given === "moved") return encodePeerFrame(FRAME.moved, id);
    if (given === "lost" || "live" in given || given.drop === true) {
      // Only calls whose answers are whole come this way.
      if (typeof given !== "string" && "live" in given)
        this.#parts.onFault(new Error("an answer without an end has no place in a frame"));
      return encodePeerFrame(FRAME.lost, id);
    }
    const { status, body, mayCompress, share, onSent } = given;
    const head = `[${status},${headersText(given)},${mayCompress === true ? 1 : 0}]`;
    const pieces = body === undefined || body instanceof Uint8Array ? [body ?? EMPTY] : body;
    const frame = encodePeerFrame(FRAME.answer, id, head, pieces);
    // The pieces are copied with the next write, which the limit of a frame bounds.
    share?.release();
    onSent?.();
    return frame;
  }
}

const EMPTY = new Uint8Array(0);

/** All answers to appends share a few sets of headers: each is made text once, without its last brace. */
const commonTexts = new WeakMap<AnswerHeaders, string>();

/** The headers as JSON. */
function headersText(answer: WholeAnswer): string {
  if (!(answer instanceof FinishedAnswer)) return JSON.stringify(answer.headers);
  const { common, own, requestId } = answer;
  let text = commonTexts.get(common);
  if (text === undefined) {
    text = JSON.stringify({ ...common, [HEADER.requestId]: "" }).slice(0, -2);
    commonTexts.set(common, text);
  }
  // A request id needs no escapes: it was made here, or its grammar was checked.
  const rest = JSON.stringify(own);
  return rest === "{}" ? `${text}${requestId}"}` : `${text}${requestId}",${rest.slice(1)}`;
}

class FrameExchange implements Exchange {
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly baseUrl: string;
  readonly authority: string | undefined;
  readonly peer: string;
  readonly certificate: ClientCertificate | undefined;
  readonly received: Uint8Array;
  readonly #target: string;
  readonly #lines: readonly string[];
  readonly #names: number;
  #aborts: (() => void)[] | undefined;
  isGone = false;

  constructor(sent: SentHead, body: Uint8Array) {
    const [, method, target, lines, address, certificate, baseUrl, authority, names] = sent;
    const mark = target.indexOf("?");
    this.method = method;
    this.path = mark === -1 ? target : target.slice(0, mark);
    this.query = mark === -1 ? "" : target.slice(mark + 1);
    this.baseUrl = baseUrl;
    this.authority = authority ?? undefined;
    this.peer = address;
    this.certificate = certificate ?? undefined;
    this.received = body;
    this.#target = target;
    this.#lines = lines;
    this.#names = names;
  }

  get hasBody(): boolean {
    return this.received.length > 0;
  }

  get bodyBytes(): number {
    return this.received.length;
  }

  checkHead(): void {
    const field = (name: string): string | undefined => this.header(name);
    // With fewer names than lines one was sent twice, and is refused.
    const names = this.#names;
    const head = { target: this.#target, version: "1.1", lines: this.#lines, names, field };
    checkHead(this.method, head);
  }

  /** The few lines are looked through: a map of them would cost more than all searches in it. */
  header(name: string): string | undefined {
    const lines = this.#lines;
    for (let at = 0; at < lines.length; at += 2) {
      const found = lines[at];
      if (found?.length === name.length && (found === name || found.toLowerCase() === name)) {
        return lines[at + 1];
      }
    }
    return undefined;
  }

  lines(): readonly string[] {
    return this.#lines;
  }

  body(bytesMax: number): Promise<Uint8Array> {
    if (this.received.length > bytesMax) return Promise.reject(tooLarge(bytesMax));
    return Promise.resolve(this.received);
  }

  onAbort(run: () => void): void {
    if (this.isGone) run();
    else (this.#aborts ??= []).push(run);
  }

  abort(): void {
    this.isGone = true;
    for (const run of this.#aborts?.splice(0) ?? []) run();
  }
}
