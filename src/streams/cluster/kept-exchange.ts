/** A request that may be answered more than once: by the owner of its shard, by the next owner, or by all shards. */

import type { ClientCertificate } from "../access/identity.ts";
import type { Exchange } from "../server/exchange.ts";

/** What is seen differently from how it was sent. */
export interface ExchangeChanges {
  /** In lower case. */
  readonly hidden?: ReadonlySet<string>;
  readonly method?: string;
  readonly body?: Uint8Array;
  readonly wantsWhole?: boolean;
}

export class KeptExchange implements Exchange {
  readonly #inner: Exchange;
  readonly #hidden: ReadonlySet<string> | undefined;
  readonly method: string;
  /** The answer is put together with others: it must not go on piece by piece. */
  readonly wantsWhole: boolean;
  #body: Promise<Uint8Array> | undefined;

  constructor(inner: Exchange, changes: ExchangeChanges = {}) {
    const { hidden, method = inner.method, body, wantsWhole = false } = changes;
    this.#inner = inner;
    this.#hidden = hidden;
    this.method = method;
    this.wantsWhole = wantsWhole;
    if (body !== undefined) this.#body = Promise.resolve(body);
  }

  get path(): string {
    return this.#inner.path;
  }

  get query(): string {
    return this.#inner.query;
  }

  get baseUrl(): string {
    return this.#inner.baseUrl;
  }

  get authority(): string | undefined {
    return this.#inner.authority;
  }

  get hasBody(): boolean {
    return this.#inner.hasBody;
  }

  get received(): Uint8Array | undefined {
    return this.#inner.received;
  }

  get bodyBytes(): number {
    return this.#inner.bodyBytes ?? 0;
  }

  get peer(): string {
    return this.#inner.peer ?? "";
  }

  get certificate(): ClientCertificate | undefined {
    return this.#inner.certificate;
  }

  get isGone(): boolean {
    return this.#inner.isGone === true;
  }

  checkHead(): void {
    this.#inner.checkHead?.();
  }

  header(name: string): string | undefined {
    return this.#hidden?.has(name) === true ? undefined : this.#inner.header(name);
  }

  /** Names and values in turn, as they were sent. */
  lines(): readonly string[] {
    const lines = this.#inner.lines?.() ?? [];
    const hidden = this.#hidden;
    if (hidden === undefined) return lines;
    const shown: string[] = [];
    for (let at = 0; at < lines.length; at += 2) {
      const [name = "", value = ""] = lines.slice(at, at + 2);
      if (!hidden.has(name.toLowerCase())) shown.push(name, value);
    }
    return shown;
  }

  /** The first limit counts: the body is received once. */
  body(bytesMax: number): Promise<Uint8Array> {
    this.#body ??= this.#inner.body(bytesMax);
    return this.#body;
  }

  onAbort(run: () => void): void {
    this.#inner.onAbort(run);
  }
}
