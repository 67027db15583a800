/** PORT. Randomness comes in through this door only, so that a test can repeat a run. */

/** A source of randomness. Everything that needs some gets one as an argument. */
export interface Random {
  /** A number in [0, 1). For jitter, never for secrets. */
  unit(): number;
  /** A fresh id of 128 random bits as 32 hexadecimal digits. */
  id(): string;
}

/** The platform's cryptographic source. */
export const systemRandom: Random = {
  unit: () => Math.random(),
  id() {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  },
};
