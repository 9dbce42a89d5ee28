/** The searches that are kept in the browser: using one, saving the one in the address, deleting one. */
import { useState } from "preact/hooks";

import { to } from "../../address";
import { visible } from "../../format";
import { Dialog } from "../../parts/dialog";
import { TextField } from "../../parts/fields";
import { LONGEST_NAME, type SavedSearch, forgetSearch, save, searches } from "../../saved";
import { type Scan, plain } from "./scan";

/** Parameters of a search that say nothing. */
const given = (parameters: Record<string, string>): Record<string, string> => Object.fromEntries(Object.entries(parameters).filter(([, value]) => value !== ""));

export function SavedSearches({ topic, scan }: { topic: string; scan: Scan }) {
  const [name, setName] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const current = given(plain(scan));
  const chosen = name.trim();
  const isReplaced = searches.value.some((it) => it.name === chosen);
  const saveCurrent = () => {
    const refused = save({ name: chosen, parameters: current });
    setProblem(refused);
    if (refused === null) setName("");
  };
  return (
    <Dialog title="Saved searches" isWide>
      <p class="hint">Saved searches, including their text, stay in this browser until they are deleted. Each works on every topic.</p>
      {searches.value.length === 0 ? <p>None is saved yet.</p> : null}
      <ul class="saved">
        {searches.value.map((search) => (
          <li key={search.name}>
            <a href={to(["topics", topic, "records"], search.parameters)}>{visible(search.name)}</a>
            <span class="soft">{visible(summary(search))}</span>
            <button type="button" class="danger" aria-label={`Delete ${search.name}`} onClick={() => setProblem(forgetSearch(search.name))}>
              Delete
            </button>
          </li>
        ))}
      </ul>
      <div class="row">
        <TextField
          label="Name"
          value={name}
          onChange={(text) => setName(text.slice(0, LONGEST_NAME))}
          problem={problem}
          hint={isReplaced ? "Replaces the saved search of this name" : `For the search on the page: ${visible(summary({ name, parameters: current }))}`}
        />
        <button type="button" disabled={chosen === ""} onClick={saveCurrent}>
          Save
        </button>
      </div>
    </Dialog>
  );
}

function summary({ parameters }: SavedSearch): string {
  return Object.entries(parameters)
    .map(([name, value]) => `${name} ${value}`)
    .join(", ");
}
