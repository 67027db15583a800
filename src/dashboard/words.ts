/** Numbers, sizes and times as people read them. */

const WHOLE = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function formatCount(value: number): string {
  return value < 100_000 ? WHOLE.format(Math.round(value)) : SHORT.format(value);
}

/** `1 stream`, `2 streams`. */
export function countOf(count: number, noun: string): string {
  return `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}

export function formatRate(value: number): string {
  return value > 0 && value < 10 ? value.toFixed(1) : formatCount(value);
}

export function formatBytes(bytes: number): string {
  let [value, unit] = [bytes, 0];
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : 1;
  return `${value.toFixed(digits)} ${UNITS[unit] ?? ""}`;
}

export function formatMs(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return "–";
  if (ms >= 1000) return `${(ms / 1000).toFixed(1)} s`;
  return `${ms > 0 && ms < 10 ? ms.toFixed(1) : ms.toFixed(0)} ms`;
}

/** A span of seconds: `1 d 3 h`, `20 min`, `45 s`. */
export function formatSpan(seconds: number): string {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  if (seconds < 86_400) return twoParts(seconds / 3600, "h", 60, "min");
  return twoParts(seconds / 86_400, "d", 24, "h");
}

function twoParts(value: number, unit: string, per: number, smaller: string): string {
  const whole = Math.floor(value);
  const rest = Math.floor((value - whole) * per);
  return rest === 0 ? `${whole} ${unit}` : `${whole} ${unit} ${rest} ${smaller}`;
}

export function formatTime(text: string): string {
  const date = new Date(text);
  return Number.isNaN(date.getTime()) ? text : date.toLocaleString();
}

/** The bytes before an offset: offsets count them. */
export function bytesOf(offset: string): number {
  return Number(offset.split("_")[1] ?? 0);
}

export function offsetOf(bytes: number): string {
  return `0000000000000000_${String(bytes).padStart(16, "0")}`;
}
