/** PORT. Spans of requests and webhooks. Adapter: opentelemetry-tracer.ts. PROTOCOL.md §22.2. */

/** Begins spans. It must be cheap. If it throws, the request goes on without a span. */
export interface Tracer {
  start(span: SpanStart): TraceSpan;
}

/** A span at its beginning. */
export interface SpanStart {
  /** The method and the route, such as `POST /{stream...}`. There are few of them. */
  readonly name: string;
  /** `server`: a request. `client`: the delivery of a webhook. */
  readonly kind: "server" | "client";
  readonly attributes: SpanAttributes;
  /** The span of the client that sent the request. Absent: a new trace begins. */
  readonly parent?: TraceContext;
}

/** Attributes of a span, with the names of OpenTelemetry. They hold no secret and no payload. */
export type SpanAttributes = Readonly<Record<string, string | number>>;

/** A span that has begun. */
export interface TraceSpan {
  /** This span, as the header `traceparent` hands it on. Undefined: it is not handed on. */
  readonly traceparent: string | undefined;
  /** Called once. */
  end(attributes: SpanAttributes, isError: boolean): void;
}

/** A span of another program, as it came with a request. */
export interface TraceContext {
  /** 32 hexadecimal digits. */
  readonly traceId: string;
  /** 16 hexadecimal digits. */
  readonly spanId: string;
  /** Bit 0: the trace is recorded. */
  readonly flags: number;
  /** The header `tracestate`, if it is valid. */
  readonly state?: string;
}
