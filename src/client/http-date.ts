/** The date of `Retry-After`, as HTTP writes it: `Sun, 06 Nov 1994 08:49:37 GMT`. RFC 9110, 5.6.7. */

const FORM = /^\w{3}, (\d{2}) (\w{3}) (\d{4}) (\d{2}):(\d{2}):(\d{2}) GMT$/;
const MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec";

/** Milliseconds since 1970, or nothing if it is not such a date. */
export function httpDateMs(text: string): number | undefined {
  const match = FORM.exec(text);
  if (match === null) return undefined;
  const [day, year, hours, minutes, seconds] = [1, 3, 4, 5, 6].map((at) => Number(match[at]));
  const at = MONTHS.indexOf(match[2] ?? "");
  if (at < 0 || at % 3 !== 0) return undefined;
  const days = daysBefore(year ?? 0, at / 3 + 1) + (day ?? 0) - 1;
  return (((days * 24 + (hours ?? 0)) * 60 + (minutes ?? 0)) * 60 + (seconds ?? 0)) * 1000;
}

/** Days from 1970 to the first of a month. The year begins in March here, so that leap days end it. */
function daysBefore(year: number, month: number): number {
  const shifted = month > 2 ? year : year - 1;
  const monthsSinceMarch = (month + 9) % 12;
  const inYears = 365 * shifted + Math.floor(shifted / 4) - Math.floor(shifted / 100);
  return (
    inYears + Math.floor(shifted / 400) + Math.floor((153 * monthsSinceMarch + 2) / 5) - 719_468
  );
}
