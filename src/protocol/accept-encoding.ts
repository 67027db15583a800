/** Reads Accept-Encoding: whether an answer may be gzipped. RFC 9110, 12.5.3. */

/** A weight in the form of RFC 9110, 12.4.2. */
const WEIGHT = /^(?:0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)$/;

/** Whether the header names gzip, and not with the weight 0. */
export function acceptsGzip(header: string): boolean {
  return header.split(",").some((item) => {
    const [coding = "", weight, ...more] = item.split(";");
    if (coding.trim().toLowerCase() !== "gzip" || more.length > 0) return false;
    return weight === undefined || isPositive(weight.trim());
  });
}

function isPositive(parameter: string): boolean {
  if (!parameter.toLowerCase().startsWith("q=")) return false;
  const weight = parameter.slice(2).trim();
  return WEIGHT.test(weight) && Number(weight) > 0;
}
