/** The options and the types of the console. */

/** What a visitor can be allowed to do, besides reading. */
export type ConsoleAct =
  | "saga.retry"
  | "saga.skip"
  | "saga.abort"
  | "saga.finish"
  | "letters.replay"
  | "letters.discard";

/** A visitor of the console. With `by` alone a visitor may read, and change nothing. */
export interface ConsoleVisitor {
  /** The name of the person or the program. The history of a saga keeps it with every act. */
  readonly by: string;
  /** `true`: every act. A list: these acts. Default: none. */
  readonly mayAct?: boolean | readonly ConsoleAct[];
  /**
   * Whether the visitor may see results, inputs and payloads, which can be personal data. They are shown on request
   * only. Default false.
   */
  readonly maySeeValues?: boolean;
}

/** An act that was done, for your audit log. */
export interface ConsoleDeed {
  readonly by: string;
  readonly act: ConsoleAct;
  /** The target of the act, in words: `saga=order scope=shop key=17`. */
  readonly target: string;
}

/** Options of `createConsole`. */
export interface ConsoleOptions {
  /**
   * Says who sends a request. Called with every request, also for the page itself. Return the visitor, or undefined to
   * refuse. You may return a response of your own, for example a redirect to your login. If it throws, the request is
   * refused.
   */
  readonly authorize: (
    request: Request,
  ) => ConsoleVisitor | Response | undefined | Promise<ConsoleVisitor | Response | undefined>;
  /** The name of your app in the title of the page. Default: the name of the ledger. */
  readonly title?: string;
  /**
   * The origin at which browsers reach your app, such as `https://admin.example.com`. Set it if a proxy changes the
   * `Host` header. Default: the origin of the request.
   */
  readonly origin?: string;
  /** Called after each act, for your audit log. Default: nothing. */
  readonly onAct?: (deed: ConsoleDeed) => void;
  /** Called with every error that the visitor does not see, such as one of your database. Default: errors are ignored. */
  readonly onError?: (error: unknown) => void;
}

/** A console. `createConsole` creates it. */
export interface LedgerConsole {
  /** Answers a request. Only the end of the path counts, so you can mount the console anywhere. Never rejects. */
  fetch(request: Request): Promise<Response>;
}
