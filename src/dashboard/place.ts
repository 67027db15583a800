/** Where the person is: the part of the address behind `#`, such as `#/stream/%2Fv1%2Fstream%2Forders`. */

import { Shared } from "./store.ts";

export interface Place {
  readonly page: string;
  readonly name: string | undefined;
}

function read(): Place {
  const [page = "", name] = location.hash.replace(/^#\/?/, "").split("/");
  let decoded: string | undefined;
  try {
    decoded = name === undefined || name === "" ? undefined : decodeURIComponent(name);
  } catch {
    // An address that was cut: the page without the name.
  }
  return { page: page === "" ? "overview" : page, name: decoded };
}

export const place = new Shared<Place>(read());

export function startPlace(): void {
  addEventListener("hashchange", () => {
    place.set(read());
  });
}

export function linkTo(page: string, name?: string): string {
  return name === undefined ? `#/${page}` : `#/${page}/${encodeURIComponent(name)}`;
}

export function go(page: string, name?: string): void {
  location.hash = linkTo(page, name);
}
