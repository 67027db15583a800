/**
 * Gives spans to `@opentelemetry/api`. It uses only the few members below, and imports nothing.
 *
 *   - a span continues the trace that came with its request, also if nothing else of that trace is recorded here;
 *   - attributes have the names of OpenTelemetry's semantic conventions.
 */

import type { TraceSpan, SpanStart, TraceContext, Tracer } from "./tracer.ts";

/** The members of `@opentelemetry/api` 1.x that are used. */
interface OpenTelemetryApi<Context> {
  readonly trace: {
    getTracer(name: string): {
      startSpan(
        name: string,
        options: OpenTelemetrySpanOptions,
        context: Context,
      ): OpenTelemetrySpan;
    };
    setSpanContext(context: Context, span: OpenTelemetrySpanContext): Context;
  };
  readonly ROOT_CONTEXT: Context;
  createTraceState(text: string): OpenTelemetryTraceState;
}

interface OpenTelemetrySpanOptions {
  kind: number;
  attributes: Record<string, string | number>;
  root?: boolean;
}

interface OpenTelemetrySpanContext {
  traceId: string;
  spanId: string;
  traceFlags: number;
  isRemote?: boolean;
  traceState?: OpenTelemetryTraceState;
}

interface OpenTelemetryTraceState {
  set(key: string, value: string): OpenTelemetryTraceState;
  unset(key: string): OpenTelemetryTraceState;
  get(key: string): string | undefined;
  serialize(): string;
}

interface OpenTelemetrySpan {
  spanContext(): OpenTelemetrySpanContext;
  setAttributes(attributes: Record<string, string | number>): unknown;
  setStatus(status: { code: number }): unknown;
  end(): void;
}

/** `SpanKind` and `SpanStatusCode` of OpenTelemetry. */
const KINDS = { server: 1, client: 2 } as const;
const STATUS_ERROR = 2;

/**
 * Returns a tracer that gives all spans to OpenTelemetry: `import * as api from "@opentelemetry/api"`, then
 * `openTelemetryTracer(api)`. Spans go to the provider that the program has registered.
 *
 * ```ts
 * import { openTelemetryTracer } from "hapax/server";
 *
 * // Stands for the exports of @opentelemetry/api.
 * const names: string[] = [];
 * const context = { traceId: "a".repeat(32), spanId: "b".repeat(16), traceFlags: 1 };
 * const span = { spanContext: () => context, setAttributes() {}, setStatus() {}, end() {} };
 * const startSpan = (name: string) => (names.push(name), span);
 * const tracer = openTelemetryTracer({
 *   trace: { getTracer: () => ({ startSpan }), setSpanContext: (root: object) => root },
 *   ROOT_CONTEXT: {},
 *   createTraceState: () => { throw new Error("not in this example"); },
 * });
 * const begun = tracer.start({ name: "GET /{stream...}", kind: "server", attributes: {} });
 * begun.end({ "http.response.status_code": 200 }, false);
 * console.assert(names[0] === "GET /{stream...}" && begun.traceparent?.endsWith("-01"));
 * ```
 */
export function openTelemetryTracer<Context>(api: OpenTelemetryApi<Context>): Tracer {
  const { trace, ROOT_CONTEXT: root } = api;
  const parentOf = ({ traceId, spanId, flags, state }: TraceContext): Context =>
    trace.setSpanContext(root, {
      traceId,
      spanId,
      traceFlags: flags,
      isRemote: true,
      ...(state === undefined ? {} : { traceState: api.createTraceState(state) }),
    });
  return {
    start({ name, kind, attributes, parent }: SpanStart): TraceSpan {
      const context = parent === undefined ? root : parentOf(parent);
      const options = { kind: KINDS[kind], attributes: { ...attributes } };
      // Asked for each time: a provider may be registered after the server has started.
      const span = trace.getTracer("hapax").startSpan(name, options, context);
      return {
        traceparent: traceparentOf(span.spanContext()),
        end(more, isError) {
          span.setAttributes({ ...more });
          if (isError) span.setStatus({ code: STATUS_ERROR });
          span.end();
        },
      };
    },
  };
}

/** Undefined for the span of an API without a provider: it has no trace. */
function traceparentOf({
  traceId,
  spanId,
  traceFlags,
}: OpenTelemetrySpanContext): string | undefined {
  if (/^0*$/.test(traceId)) return undefined;
  return `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, "0")}`;
}
