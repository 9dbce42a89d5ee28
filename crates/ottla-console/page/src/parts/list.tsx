/** The table of a list that is loaded as it comes into view, and its placeholder while there are no rows yet. */
import type { LoadedList } from "../load";
import { Failure, Loading } from "./states";
import { Table, type TableProps } from "./table";

interface Props<T> extends Omit<TableProps<T>, "total" | "row" | "onView"> {
  list: LoadedList<T>;
  /** The rows in words. */
  what: string;
}

export function ListTable<T>({ list, what, ...table }: Props<T>) {
  return (
    <>
      <Failure problem={list.problem} retry={list.reload} />
      {list.total === undefined ? (
        list.problem ? null : <Loading what={what} />
      ) : (
        <Table isTall {...table} total={list.total} row={list.row} onView={list.need} />
      )}
    </>
  );
}
