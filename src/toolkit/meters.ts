/**
 * `hapax/meters`: meters that count what the toolkit does. `prometheusMeter` returns text for Prometheus, `openTelemetryMeter`
 * gives the counts to a meter of `@opentelemetry/api`. Neither adds a dependency.
 */

export { type Meter, METRICS } from "./meters/meter.ts";
export { openTelemetryMeter } from "./meters/opentelemetry.ts";
export {
  type PrometheusMeter,
  prometheusMeter,
  type PrometheusOptions,
} from "./meters/prometheus.ts";
