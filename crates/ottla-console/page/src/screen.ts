/** The screen: its width, and whether it is light or dark. */
import { effect, signal } from "@preact/signals";

const narrow = matchMedia("(max-width: 44rem)");
export const isNarrow = signal(narrow.matches);
narrow.addEventListener("change", () => (isNarrow.value = narrow.matches));

export type Theme = "system" | "light" | "dark";
const STORED = "ottla-theme";
const stored = localStorage.getItem(STORED);
export const theme = signal<Theme>(stored === "light" || stored === "dark" ? stored : "system");

const darkSystem = matchMedia("(prefers-color-scheme: dark)");
export const isDark = signal(darkSystem.matches);

function apply(): void {
  isDark.value = theme.value === "dark" || (theme.value === "system" && darkSystem.matches);
}

darkSystem.addEventListener("change", apply);
effect(() => {
  if (theme.value === "system") {
    delete document.documentElement.dataset["theme"];
    localStorage.removeItem(STORED);
  } else {
    document.documentElement.dataset["theme"] = theme.value;
    localStorage.setItem(STORED, theme.value);
  }
  apply();
});

export function nextTheme(): void {
  theme.value = theme.peek() === "system" ? (isDark.peek() ? "light" : "dark") : theme.peek() === "dark" ? "light" : "system";
}
