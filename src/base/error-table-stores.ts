/** The part of the table of errors (error-table.ts) that is about where streams are kept. */

export interface ErrorSpec {
  readonly status: number;
  /**
   * `same`: the call was not done, repeat it as it is. `later`: busy, or the outcome is unknown: repeat
   * the same call after a pause, its identity makes that safe. `never`: change something first.
   */
  readonly retry: "same" | "later" | "never";
  readonly help: string;
}

/** Codes of stores. */
export const STORE_ERRORS = {
  directory_unusable: {
    status: 500,
    retry: "never",
    help: "Correct its path, its owner, its mode or its file system, as the message says; nothing was changed.",
  },
  format_unknown: {
    status: 500,
    retry: "never",
    help: "Nothing was changed. Open it with the version that wrote it, or use another directory.",
  },
  data_damaged: {
    status: 500,
    retry: "never",
    help: "Run hapax verify on the directory; hapax repair shows what can be saved.",
  },
  directory_locked: {
    status: 503,
    retry: "later",
    help: "Stop the other server, or use another directory.",
  },
  shard_moved: {
    status: 503,
    retry: "later",
    help: "Repeat the same call: the other server answers it. What this one had not acknowledged may or may not be stored.",
  },
  shard_owned: {
    status: 503,
    retry: "later",
    help: "Stop it, wait until it is gone, or let this one wait (--takeover wait).",
  },
  owner_unknown: {
    status: 503,
    retry: "later",
    help: "Nothing was done. Repeat the same call after a pause: another server takes the streams over.",
  },
  placement_mixed: {
    status: 400,
    retry: "never",
    help: "Give the streams names with the same first segment, or the same {tag} in it; PROTOCOL.md §24.1.",
  },
  engine_went_back: {
    status: 503,
    retry: "later",
    help: "Look whether an old standby was promoted or a backup restored, before you start again.",
  },
  writes_stopped: {
    status: 503,
    retry: "later",
    help: "Reads go on. Restart the server: recovery decides from the log what was stored.",
  },
} as const satisfies Record<string, ErrorSpec>;
