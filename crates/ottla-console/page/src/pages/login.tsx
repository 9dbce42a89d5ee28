import { useState } from "preact/hooks";

import { fromElsewhere, go, query } from "../address";
import { call, session, textOf } from "../api";
import { SelectField, TextField } from "../parts/fields";
import { forget } from "../load";
import type { Session } from "../wire";

export function Login() {
  const { mechanisms, login, bootstrap_servers: servers } = session.value!;
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const [mechanism, setMechanism] = useState(mechanisms[0] ?? "");
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const wanted = query.value.get("next") ?? "/";
  // An address of this page only: `//host` would lead away from it.
  const next = /^\/(?![/\\])/.test(wanted) ? fromElsewhere(wanted) : "/";
  if (login !== "required") {
    return (
      <div class="card">
        <h1>{login === "none" ? "No login is needed here" : "You are logged in"}</h1>
        <p>
          <a href={next}>Go to the console</a>
        </p>
      </div>
    );
  }
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      const found = await call<Session>("POST", "/api/session", { user, password, ...(mechanism ? { mechanism } : {}) });
      forget();
      session.value = found;
      go(next, "replace");
    } catch (error) {
      setProblem(textOf(error));
      setBusy(false);
    }
  };
  return (
    <form class="card" onSubmit={submit}>
      <h1>Log in</h1>
      <p class="soft">
        With a SASL user of the cluster at <code>{servers}</code>. Everything you do here happens with that user's rights.
      </p>
      <TextField label="User" value={user} onChange={setUser} isFocused isRequired autocomplete="username" />
      <TextField label="Password" type="password" value={password} onChange={setPassword} isRequired autocomplete="current-password" />
      {mechanisms.length > 1 ? <SelectField label="Mechanism" value={mechanism} options={mechanisms.map((name) => [name, name] as const)} onChange={setMechanism} /> : null}
      {problem ? (
        <p class="failure" role="alert">
          {problem}
        </p>
      ) : null}
      <button class="primary" type="submit" disabled={isBusy}>
        {isBusy ? "Logging in …" : "Log in"}
      </button>
    </form>
  );
}
