/**
 * A table that renders only the rows on the screen, for lists of any length. Rows have one height, so that the place
 * of each is known without rendering those before it.
 */
import type { ComponentChildren, VNode } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { go } from "../address";
import { useKeys } from "../keys";
import { isNarrow } from "../screen";

const ROW_PX = 30;
/** Rows rendered above and below the screen, and the step in which they move. */
const MARGIN = 6;
const STEP = 6;

export interface Column<T> {
  /** Also the name by which the server sorts. */
  id: string;
  title: string;
  /** In px; columns without a width share the rest. */
  width?: number;
  /** The width on narrow screens. */
  narrowWidth?: number;
  isNumber?: boolean;
  isSortable?: boolean;
  /** Left out on narrow screens. */
  isExtra?: boolean;
  help?: string;
  cell: (row: T, index: number) => ComponentChildren;
}

export interface Order {
  by: string;
  isDescending: boolean;
}

export interface TableProps<T> {
  label: string;
  columns: readonly Column<T>[];
  total: number;
  row: (index: number) => T | undefined;
  /** Where a click on the row leads; the first column holds the link. */
  href?: (row: T) => string | undefined;
  onPick?: (row: T) => void;
  isPicked?: (row: T) => boolean;
  onView?: (from: number, to: number) => void;
  order?: Order | undefined;
  onOrder?: (order: Order) => void;
  tone?: (row: T) => string | undefined;
  /** Takes the height that is left on the page, in place of that of its rows. */
  isTall?: boolean;
  /** New rows come at the top: the visible rows stay in place while the user reads further down. */
  growsAtTop?: boolean;
  /** Shown in place of an empty table. */
  children?: ComponentChildren;
}

export function Table<T>(props: TableProps<T>) {
  const { total, row, href, onPick, onView, order, onOrder, growsAtTop = false } = props;
  const columns = isNarrow.value ? props.columns.filter((column) => !column.isExtra) : props.columns;
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState<[number, number]>([0, 36]);
  const [cursor, drawCursor] = useState(-1);
  // Keys may come faster than the table is drawn.
  const cursorNow = useRef(-1);
  const setCursor = (index: number) => {
    cursorNow.current = index;
    drawCursor(index);
  };
  const wantsFocus = useRef(false);
  const drawn = useRef(new Map<number, Drawn>());

  const look = () => {
    const element = box.current;
    if (!element) return;
    const first = Math.floor(element.scrollTop / ROW_PX);
    const shown = Math.ceil(element.clientHeight / ROW_PX) + 1;
    const from = Math.max(0, Math.floor((first - MARGIN) / STEP) * STEP);
    const to = Math.ceil((first + shown + MARGIN) / STEP) * STEP;
    setView((before) => (before[0] === from && before[1] === to ? before : [from, to]));
  };
  useLayoutEffect(() => {
    look();
    const observer = new ResizeObserver(look);
    if (box.current) observer.observe(box.current);
    return () => observer.disconnect();
  }, [total > 0]);

  const before = useRef(total);
  useLayoutEffect(() => {
    const added = total - before.current;
    before.current = total;
    const element = box.current;
    if (growsAtTop && element && added > 0 && element.scrollTop > ROW_PX) element.scrollTop += added * ROW_PX;
  }, [total]);

  const [from, to] = [Math.min(view[0], Math.max(0, total - 1)), Math.min(view[1], total)];
  useEffect(() => onView?.(from, to), [from, to]);

  const move = (by: number) => {
    const next = Math.min(total - 1, Math.max(0, cursorNow.current + by));
    const element = box.current;
    if (!element || total === 0) return;
    const top = next * ROW_PX;
    const head = ROW_PX;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + ROW_PX > element.scrollTop + element.clientHeight - head) element.scrollTop = top + ROW_PX + head - element.clientHeight;
    wantsFocus.current = true;
    setCursor(next);
  };
  useEffect(() => {
    if (!wantsFocus.current) return;
    const target = box.current?.querySelector<HTMLElement>(`tr[aria-rowindex="${cursorNow.current + 2}"] :is(a, button)`);
    if (target) {
      wantsFocus.current = false;
      target.focus({ preventScroll: true });
    }
  });
  const isWalkable = Boolean(href ?? onPick);
  useKeys(
    isWalkable
      ? [
          { keys: "j", does: "next row", run: () => move(1) },
          { keys: "k", does: "previous row", run: () => move(-1) },
        ]
      : [],
    [total, isWalkable],
  );

  if (total === 0 && props.children) return <div class="empty">{props.children}</div>;

  const widthOf = (column: Column<T>) => (isNarrow.value ? (column.narrowWidth ?? column.width) : column.width);
  const least = columns.reduce((sum, column) => sum + (widthOf(column) ?? 150), 0);
  const rows: VNode[] = [];
  // A row that is as it was keeps its node, which Preact then does not compare at all.
  const kept = drawn.current;
  const next = new Map<number, Drawn>();
  for (let index = from; index < to; index += 1) {
    const data = row(index);
    const style = rowClass(data === undefined ? undefined : props.tone?.(data), data !== undefined && props.isPicked?.(data), index === cursor, isWalkable);
    const old = kept.get(index);
    if (old && data !== undefined && old.data === data && old.style === style && old.columns === columns && old.onPick === onPick) {
      next.set(index, old);
      rows.push(old.node);
      continue;
    }
    const node = (
      <tr
        key={index}
        aria-rowindex={index + 2}
        class={style}
        onClick={(event) => {
          if (data === undefined) return;
          const target = event.target as Element;
          if (target.closest("a, button, input, label, select") || getSelection()?.isCollapsed === false) return;
          setCursor(index);
          const address = href?.(data);
          if (onPick) onPick(data);
          else if (address) go(address);
        }}
      >
        {columns.map((column, at) => (
          <td key={column.id} class={column.isNumber ? "number" : undefined}>
            {data === undefined ? (at === 0 ? <span class="pending">…</span> : null) : column.cell(data, index)}
          </td>
        ))}
      </tr>
    );
    next.set(index, { data, style, columns, onPick, node });
    rows.push(node);
  }
  drawn.current = next;
  return (
    <div class={props.isTall ? "table tall" : "table"} ref={box} onScroll={look} tabIndex={0} role="region" aria-label={props.label}>
      <table aria-rowcount={total + 1} style={{ minWidth: `${least}px` }}>
        <colgroup>
          {columns.map((column) => (
            <col key={column.id} style={widthOf(column) ? { width: `${widthOf(column)}px` } : undefined} />
          ))}
        </colgroup>
        <thead>
          <tr aria-rowindex={1}>
            {columns.map((column) => (
              <Head key={column.id} column={column} order={order} onOrder={onOrder} />
            ))}
          </tr>
        </thead>
        <tbody>
          <Space key="above" rows={from} />
          {rows}
          <Space key="below" rows={total - to} />
        </tbody>
      </table>
    </div>
  );
}

/** A drawn row, and its source. */
interface Drawn {
  data: unknown;
  style: string;
  columns: unknown;
  onPick: unknown;
  node: VNode;
}

function rowClass(tone: string | undefined, isPicked: boolean | undefined, isCursor: boolean, isWalkable: boolean): string {
  return [tone, isPicked && "picked", isCursor && "cursor", isWalkable && "walkable"].filter(Boolean).join(" ");
}

/** The height of the rows that are not rendered. */
function Space({ rows }: { rows: number }) {
  return rows > 0 ? <tr class="space" aria-hidden="true" style={{ height: `${rows * ROW_PX}px` }} /> : null;
}

function Head<T>({ column, order, onOrder }: { column: Column<T>; order: Order | undefined; onOrder: ((order: Order) => void) | undefined }) {
  const isOrdered = order?.by === column.id;
  const arrow = isOrdered ? (order.isDescending ? " ↓" : " ↑") : "";
  return (
    <th
      scope="col"
      class={column.isNumber ? "number" : undefined}
      title={column.help}
      aria-sort={isOrdered ? (order.isDescending ? "descending" : "ascending") : undefined}
    >
      {column.isSortable && onOrder ? (
        <button type="button" class="plain" onClick={() => onOrder({ by: column.id, isDescending: isOrdered ? !order.isDescending : Boolean(column.isNumber) })}>
          {column.title}
          {arrow}
        </button>
      ) : (
        column.title || <span class="unseen">{column.id}</span>
      )}
    </th>
  );
}

/** Rows that are all here, in the order that was chosen. Unknown values come last in either direction. */
export function sorted<T>(rows: readonly T[], order: Order | undefined, value: (row: T, by: string) => string | number | null | undefined): readonly T[] {
  if (!order) return rows;
  const sign = order.isDescending ? -1 : 1;
  const keyed = rows.map((row) => [value(row, order.by) ?? null, row] as const);
  keyed.sort(([a], [b]) => {
    if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
    return a === b ? 0 : (a < b ? -1 : 1) * sign;
  });
  return keyed.map(([, row]) => row);
}
