/** Faults of errors: what would tell a program to repeat what it must not, or to give up what it may repeat. */
const BUNDLES = "test/bundles.test.ts";
export const errorFaults = [
  {
    name: "errors: the status is not looked up when the error is made",
    guarantee: "G36",
    file: "src/base/errors.ts",
    find: "status: specOf(code)?.status ?? options?.status ?? 500 });",
    replace: "status: options?.status ?? 500 });",
    caughtBy: { file: BUNDLES, test: "by rolldown > G36 what the toolkit throws" },
  },
  {
    name: "errors: the advice is that of the status alone",
    guarantee: "G36",
    file: "src/base/error-codes.ts",
    find: "this.retry = RETRY[code] ?? retryAfter(this.status);",
    replace: 'this.retry = RETRY[code] === "same" ? "same" : retryAfter(this.status);',
    caughtBy: {
      file: BUNDLES,
      test: "by esbuild > G36 an error of an answer to the client has the status and the advice of its code",
    },
  },
];
