/** Light or dark: as the system has it, until the person chooses. */

import { Shared } from "./store.ts";

export type Theme = "light" | "dark";

const ITEM = "hapax-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

function chosen(): Theme | undefined {
  const text = localStorage.getItem(ITEM);
  return text === "light" || text === "dark" ? text : undefined;
}

export const theme = new Shared<Theme>(chosen() ?? (dark.matches ? "dark" : "light"));

function show(): void {
  document.documentElement.dataset["theme"] = theme.value;
}

export function startTheme(): void {
  show();
  // First the style, then those that read its colours.
  dark.addEventListener("change", () => {
    if (chosen() !== undefined) return;
    put(dark.matches ? "dark" : "light");
  });
}

function put(next: Theme): void {
  document.documentElement.dataset["theme"] = next;
  theme.set(next);
}

export function toggleTheme(): void {
  const next = theme.value === "dark" ? "light" : "dark";
  localStorage.setItem(ITEM, next);
  put(next);
}
