/**
 * The span of a webhook. It begins a trace of its own: a wake stands for all appends since the last one, and none of them is its
 * parent. The receiver continues it by `traceparent`. Without a tracer there is no header: one that says "not recorded" would
 * make receivers drop their own spans. PROTOCOL.md §22.2.
 */

import type { CourierAnswer } from "../../courier.ts";
import type { Tracer } from "../../tracer.ts";

export interface DeliverySpan {
  readonly headers: Readonly<Record<string, string>>;
  end(answer: CourierAnswer): void;
}

const NONE: DeliverySpan = { headers: {}, end: () => undefined };

/** The span has the host of the URL alone: the rest of it may be a secret. */
export function beginDelivery(
  tracer: Tracer | undefined,
  subscription: string,
  wakeId: string,
  url: string,
): DeliverySpan {
  if (tracer === undefined) return NONE;
  try {
    const span = tracer.start({
      name: "POST webhook",
      kind: "client",
      attributes: {
        "http.request.method": "POST",
        "server.address": URL.canParse(url) ? new URL(url).host : "",
        "hapax.subscription": subscription,
        "hapax.wake": wakeId,
      },
    });
    const { traceparent } = span;
    return {
      headers: traceparent === undefined ? {} : { traceparent },
      end: (answer) => {
        try {
          const isTaken = answer.kind === "answered" && answer.status >= 200 && answer.status < 300;
          const status =
            answer.kind === "answered" ? { "http.response.status_code": answer.status } : {};
          span.end(isTaken ? status : { ...status, "error.type": answer.kind }, !isTaken);
        } catch {
          // A tracer that fails must not cost a delivery.
        }
      },
    };
  } catch {
    return NONE;
  }
}
