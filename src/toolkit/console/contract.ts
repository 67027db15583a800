/** What a program passes to its console, and what it gets. */

/** What a visitor may do beside looking. */
export type ConsoleAct =
  | "saga.retry"
  | "saga.skip"
  | "saga.abort"
  | "saga.finish"
  | "letters.replay"
  | "letters.discard";

/** Who looks at the console. Without more members a visitor may look, and nothing else. */
export interface ConsoleVisitor {
  /** The name of the person or the program. The history of a saga keeps it with every act. */
  readonly by: string;
  /** `true`: every act. A list: these acts. Default: none. */
  readonly mayAct?: boolean | readonly ConsoleAct[];
  /** Whether results, inputs and payloads are shown when the visitor asks for them. They may be personal data. Default false. */
  readonly maySeeValues?: boolean;
}

/** An act that was done, for your audit log. */
export interface ConsoleDeed {
  readonly by: string;
  readonly act: ConsoleAct;
  /** What it was done to, in words: `saga=order scope=shop key=17`. */
  readonly target: string;
}

/** Options of `createConsole`. */
export interface ConsoleOptions {
  /**
   * Called with every request, also those for the page itself. Return who it is, or undefined to refuse. You may return an answer
   * of your own, as one that leads to your login. What it throws is a refusal.
   */
  readonly authorize: (
    request: Request,
  ) => ConsoleVisitor | Response | undefined | Promise<ConsoleVisitor | Response | undefined>;
  /** The name of your app in the title of the page. Default: the name of the ledger. */
  readonly title?: string;
  /**
   * The origin under which browsers reach your app, such as `https://admin.example.com`. Set it if a proxy changes the `Host` of
   * requests. Default: that of the request.
   */
  readonly origin?: string;
  /** Called after each act. Default: nothing. */
  readonly onAct?: (deed: ConsoleDeed) => void;
  /** Called with every error that the visitor does not get, as one of your database. Default: errors are ignored. */
  readonly onError?: (error: unknown) => void;
}

/** A console. Made by `createConsole`. */
export interface LedgerConsole {
  /** Answers a request of a browser for any path that ends as one of the console does. Never rejects. */
  fetch(request: Request): Promise<Response>;
}
