/**
 * PORT. Sends webhooks. It is the only way by which a request leaves the server.
 *
 *   - An address that is not allowed gets no packet: neither by its name, nor by what the name
 *     resolves to, nor by resolving to something else between the check and the connection.
 *   - A redirect is an answer and is never followed.
 *   - The time limit covers everything from resolving the name to the last byte of the answer.
 *   - No more than `answerBytesMax` bytes of an answer are kept; a longer one is a failure.
 *   - Everything that the other side does becomes a value; only a fault of the caller rejects.
 *   - When the signal aborts, the delivery ends at once as `failed`.
 *
 * Retries, the order of deliveries and their number at once are decided elsewhere.
 */

export interface CourierRequest {
  readonly url: string;
  /** The courier adds Host, Content-Length and Connection itself. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
  readonly timeoutMs: number;
  readonly answerBytesMax: number;
  readonly signal: AbortSignal;
}

export type CourierAnswer =
  /** Any status, also 3xx and 5xx. The caller decides what it means. */
  | { readonly kind: "answered"; readonly status: number; readonly body: Uint8Array }
  /** The address is not allowed. Nothing was sent. */
  | { readonly kind: "refused"; readonly reason: string }
  /** Network, time, size or abort. The other side may or may not have received the request. */
  | { readonly kind: "failed"; readonly reason: string };

export interface Courier {
  deliver(request: CourierRequest): Promise<CourierAnswer>;
}
