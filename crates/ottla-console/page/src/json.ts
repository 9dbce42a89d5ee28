/**
 * JSON laid out for reading. The text is cut into tokens and never parsed into numbers, so that 64-bit numbers, the
 * order of fields and repeated fields stay as they are in the record.
 */

export interface Token {
  kind: "name" | "string" | "number" | "word" | "mark" | "space";
  text: string;
}

const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[{}[\],:]|\s+/sy;
/** Deeper nesting is not indented further, so that hostile input cannot make lines of any length. */
const DEEPEST = 40;

/** The tokens of laid-out JSON, or null if the text is not JSON, or only a part of it. */
export function laidOut(text: string): Token[] | null {
  const tokens = cut(text);
  if (!tokens) return null;
  const out: Token[] = [];
  let depth = 0;
  const line = () => out.push({ kind: "space", text: "\n" + "  ".repeat(Math.min(depth, DEEPEST)) });
  for (let at = 0; at < tokens.length; at += 1) {
    const token = tokens[at]!;
    const next = tokens[at + 1]?.text;
    if (token.text === "{" || token.text === "[") {
      out.push(token);
      const end = token.text === "{" ? "}" : "]";
      if (next === end) {
        out.push(tokens[at + 1]!);
        at += 1;
      } else {
        depth += 1;
        line();
      }
    } else if (token.text === "}" || token.text === "]") {
      depth -= 1;
      if (depth < 0) return null;
      line();
      out.push(token);
    } else if (token.text === ",") {
      out.push(token);
      line();
    } else if (token.text === ":") {
      out.push({ kind: "mark", text: ": " });
    } else {
      out.push(token.kind === "string" && next === ":" ? { kind: "name", text: token.text } : token);
    }
  }
  return depth === 0 ? out : null;
}

function cut(text: string): Token[] | null {
  const tokens: Token[] = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.length) {
    const found = TOKEN.exec(text)?.[0];
    if (found === undefined) return null;
    const first = found[0]!;
    if (/\s/.test(first)) continue;
    const kind = first === '"' ? "string" : /[-\d]/.test(first) ? "number" : /[a-z]/.test(first) ? "word" : "mark";
    tokens.push({ kind, text: found });
  }
  return tokens.length > 0 ? tokens : null;
}

/** A dump of hexadecimal digits: offset, 16 bytes, and their characters. */
export function hexDump(digits: string): string {
  const clean = digits.replaceAll(/[^0-9a-fA-F]/g, "");
  const lines: string[] = [];
  for (let at = 0; at < clean.length; at += 32) {
    const bytes = clean.slice(at, at + 32).match(/../g) ?? [];
    const shown = bytes
      .map((byte) => {
        const code = parseInt(byte, 16);
        return code >= 0x20 && code < 0x7f ? String.fromCharCode(code) : "·";
      })
      .join("");
    const columns = bytes.map((byte, index) => (index === 8 ? " " + byte : byte)).join(" ");
    lines.push(`${(at / 2).toString(16).padStart(6, "0")}  ${columns.padEnd(48)}  ${shown}`);
  }
  return lines.join("\n");
}
