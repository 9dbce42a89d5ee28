/** Numbers, sizes and times as text. Every function accepts `null` or `undefined` for an unknown value. */

const UNKNOWN = "–";
type Unknown = null | undefined;

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** 1234567 is `1,234,567`. */
export function count(value: number | Unknown): string {
  return value === null || value === undefined ? UNKNOWN : whole.format(value);
}

/** `1 partition`, `2 partitions`. */
export function plural(value: number | Unknown, one: string, many = one + "s"): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

const SIZES = ["B", "kB", "MB", "GB", "TB", "PB"];

/** Decimal units, three significant digits: 1234567 is `1.23 MB`. */
export function bytes(value: number | Unknown): string {
  return scaled(value, SIZES);
}

export function byteRate(perSecond: number | Unknown): string {
  return perSecond === null || perSecond === undefined ? UNKNOWN : bytes(perSecond) + "/s";
}

/** 1234567 is `1.23 M`. */
export function short(value: number | Unknown): string {
  return scaled(value, ["", "k", "M", "G"]);
}

export function rate(perSecond: number | Unknown): string {
  return perSecond === null || perSecond === undefined ? UNKNOWN : short(perSecond) + "/s";
}

function scaled(value: number | Unknown, units: readonly string[]): string {
  if (value === null || value === undefined || Number.isNaN(value)) return UNKNOWN;
  let rest = Math.abs(value);
  let unit = 0;
  while (rest >= 999.5 && unit < units.length - 1) {
    rest /= 1000;
    unit += 1;
  }
  const digits = unit === 0 ? (rest >= 9.95 || Number.isInteger(rest) ? 0 : 1) : rest >= 99.95 ? 0 : rest >= 9.995 ? 1 : 2;
  const sign = value < 0 ? "−" : "";
  return `${sign}${rest.toFixed(digits)}${units[unit] ? " " + units[unit] : ""}`;
}

/** The two largest units: `3 d 4 h`, `12 s`, `250 ms`. */
export function duration(ms: number | Unknown): string {
  if (ms === null || ms === undefined) return UNKNOWN;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1).replace(/\.0$/, "") : Math.round(seconds)} s`;
  const steps: [number, string][] = [
    [86_400, "d"],
    [3_600, "h"],
    [60, "min"],
    [1, "s"],
  ];
  for (let at = 0; at < steps.length - 1; at += 1) {
    const [size, unit] = steps[at]!;
    if (seconds >= size) {
      const [next, nextUnit] = steps[at + 1]!;
      const rest = Math.floor((seconds % size) / next);
      return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${nextUnit}` : ""}`;
    }
  }
  return UNKNOWN;
}

/** Local time with the offset that the browser is set to: `2026-03-01 14:05:09.123`. */
export function time(ms: number | Unknown): string {
  if (ms === null || ms === undefined || ms < 0) return UNKNOWN;
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return String(ms);
  const two = (value: number) => String(value).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

/** `2026-11-21T20:45:04Z` is `2026-11-21 20:45 UTC`; other texts are shown as they are. */
export function utc(text: string): string {
  return /^\d{4}-\d\d-\d\dT\d\d:\d\d.*Z$/.test(text) ? `${text.slice(0, 16).replace("T", " ")} UTC` : visible(text);
}

export function ago(ms: number | Unknown, now = Date.now()): string {
  if (ms === null || ms === undefined || ms < 0) return UNKNOWN;
  return now - ms < 1000 ? "now" : `${duration(now - ms)} ago`;
}

/** A setting of a broker or topic in its own unit: `retention.ms=604800000` is `7 d`. Empty if there is nothing to add. */
export function settingHint(name: string, value: string | Unknown): string {
  if (!value || !/^-?\d+$/.test(value)) return "";
  const number = Number(value);
  // Two of the topic's settings have a second special value.
  if (number === -2 && name.startsWith("local.retention.")) return `as ${name.slice("local.".length)}`;
  if (/\.ms$/.test(name)) return number < 0 ? "no limit" : number > 1e15 ? "practically never" : duration(number);
  if (/bytes(\.|$)/.test(name)) return number < 0 ? "no limit" : number >= 1000 ? bytes(number) : "";
  return "";
}

/**
 * Text of unknown origin on one line: control characters and characters that reorder text become visible codes, so that
 * a record cannot make the page look other than it is.
 */
export function visible(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f]|[\u0080-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, (character) => {
    const code = character.charCodeAt(0);
    if (character === "\n") return "↵";
    if (character === "\t") return "→";
    return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

/** Like [`visible`], but lines and tabs stay. */
export function visibleLines(text: string): string {
  return text
    .split("\n")
    .map((line) => line.split("\t").map(visible).join("\t"))
    .join("\n");
}
