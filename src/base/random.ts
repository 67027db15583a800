/** PORT. All randomness comes from a `Random`, so that a test can repeat a run. */

/** A source of randomness. Everything that needs some takes one as an argument. */
export interface Random {
  /** Returns a number in [0, 1). For jitter, never for secrets. */
  unit(): number;
  /** Returns a new id of 128 random bits as 32 hexadecimal digits. */
  id(): string;
}

/** The platform's cryptographic source. */
export const systemRandom: Random = {
  unit: () => Math.random(),
  id() {
    // As `hexOf`, which as a function of its own would cost the client's bundle 8 bytes.
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  },
};
