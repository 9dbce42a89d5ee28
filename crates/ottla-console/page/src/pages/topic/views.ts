/** How keys and values can be viewed. */
import { session } from "../../api";

/** Views by a schema are there if the console has a schema registry, or if the address names them. */
export function views(chosen: string): (readonly [string, string])[] {
  const isSchema = session.value?.registry || chosen === "avro" || chosen === "protobuf";
  return [
    ["auto", "Auto"],
    ["text", "Text"],
    ["json", "JSON"],
    ...(isSchema ? ([["avro", "Avro"], ["protobuf", "Protobuf"]] as const) : []),
    ["hex", "Hex"],
  ];
}
