/** Form fields with their label, hint and problem. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { query, setQuery } from "../address";
import { useKeys } from "../keys";

interface Shared {
  label: string;
  hint?: ComponentChildren;
  problem?: string | null;
}

interface TextProps extends Shared {
  value: string;
  onChange: (value: string) => void;
  type?: "text" | "number" | "password" | "datetime-local";
  placeholder?: string;
  lines?: number;
  list?: readonly string[];
  isFocused?: boolean;
  isRequired?: boolean;
  autocomplete?: string;
  min?: number;
}

let lists = 0;

export function TextField({ label, hint, problem, value, onChange, type = "text", placeholder, lines, list, isFocused, isRequired, autocomplete = "off", min }: TextProps) {
  const [id] = useState(() => `list-${(lists += 1)}`);
  const shared = { value, placeholder, spellcheck: false, required: isRequired, "aria-invalid": problem ? true : undefined } as const;
  return (
    <label class="field">
      <span>{label}</span>
      {lines ? (
        <textarea {...shared} rows={lines} autofocus={isFocused} onInput={(event) => onChange(event.currentTarget.value)} />
      ) : (
        <input
          {...shared}
          type={type as "text"}
          min={min}
          step={type === "datetime-local" ? 1 : undefined}
          autofocus={isFocused}
          autocomplete={autocomplete}
          autocapitalize="off"
          list={list ? id : undefined}
          onInput={(event) => onChange(event.currentTarget.value)}
        />
      )}
      {list ? (
        <datalist id={id}>
          {list.slice(0, 200).map((item) => (
            <option key={item} value={item} />
          ))}
        </datalist>
      ) : null}
      {problem ? <small class="bad">{problem}</small> : hint ? <small>{hint}</small> : null}
    </label>
  );
}

export function SelectField<T extends string>({ label, hint, value, options, onChange }: Shared & { value: T; options: readonly (readonly [T, string])[]; onChange: (value: T) => void }) {
  return (
    <label class="field">
      <span>{label}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value as T)}>
        {options.map(([name, text]) => (
          <option key={name} value={name}>
            {text}
          </option>
        ))}
      </select>
      {hint ? <small>{hint}</small> : null}
    </label>
  );
}

export function CheckField({ label, isChecked, onChange, hint }: { label: string; isChecked: boolean; onChange: (isChecked: boolean) => void; hint?: string }) {
  return (
    <label class="check" title={hint}>
      <input type="checkbox" checked={isChecked} onChange={(event) => onChange(event.currentTarget.checked)} />
      <span>{label}</span>
    </label>
  );
}

/** One of a few, all of them visible. */
export function Choice<T extends string>({ label, value, options, onChange }: { label: string; value: T; options: readonly (readonly [T, string])[]; onChange: (value: T) => void }) {
  return (
    <div class="choice" role="group" aria-label={label}>
      {options.map(([name, text]) => (
        <button key={name} type="button" aria-pressed={name === value} onClick={() => onChange(name)}>
          {text}
        </button>
      ))}
    </div>
  );
}

const TYPING_MS = 150;

/** The search field of a page: `/` goes to it, its text is the parameter `search` of the address. */
export function Search({ label, parameter = "search" }: { label: string; parameter?: string }) {
  const input = useRef<HTMLInputElement>(null);
  const current = query.value.get(parameter) ?? "";
  const [text, setText] = useState(current);
  const timer = useRef(0);
  useEffect(() => {
    if (document.activeElement !== input.current) setText(current);
  }, [current]);
  // The text must not become a search on the next page.
  useEffect(() => () => clearTimeout(timer.current), []);
  useKeys([
    {
      keys: "/",
      does: "search",
      run: () => {
        input.current?.focus();
        input.current?.select();
      },
    },
  ]);
  const change = (value: string) => {
    setText(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setQuery({ [parameter]: value }), TYPING_MS);
  };
  return (
    <input
      ref={input}
      class="search"
      type="search"
      aria-label={label}
      placeholder={`${label}  ( / )`}
      value={text}
      spellcheck={false}
      onInput={(event) => change(event.currentTarget.value)}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        if (text) change("");
        else input.current?.blur();
        event.preventDefault();
      }}
    />
  );
}
