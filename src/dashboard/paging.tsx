/** Lists that the server gives page by page: the page that is shown, and the buttons for the others. */

import { useState } from "preact/hooks";

interface Paging {
  /** What the shown page comes after; empty for the first one. */
  readonly from: string;
  readonly isFirst: boolean;
  /** Shows the page after `next`, which is what the server says of the shown one. */
  readonly on: (next: string) => void;
  readonly back: () => void;
  readonly restart: () => void;
}

export function usePaging(): Paging {
  const [after, setAfter] = useState<readonly string[]>([]);
  return {
    from: after.at(-1) ?? "",
    isFirst: after.length === 0,
    on: (next) => setAfter([...after, next]),
    back: () => setAfter(after.slice(0, -1)),
    restart: () => setAfter([]),
  };
}

export function Pager({ paging, next }: { paging: Paging; next: string | undefined }) {
  if (paging.isFirst && next === undefined) return null;
  return (
    <div class="buttons">
      {paging.isFirst ? null : (
        <button type="button" onClick={paging.back}>
          Page before
        </button>
      )}
      {next === undefined ? null : (
        <button type="button" onClick={() => paging.on(next)}>
          Next page
        </button>
      )}
    </div>
  );
}
