import { useEffect, useState } from "preact/hooks";

import { fromElsewhere, go, query, to } from "../address";
import { call, session, textOf } from "../api";
import { keepDraftsOf } from "../draft";
import { forget } from "../load";
import { SelectField, TextField } from "../parts/fields";
import type { Session } from "../wire";

/** Where the tab remembers the address to go to, while it is at the identity provider. */
const NEXT = "next";

/** The parameters that the identity provider has added to the address. They are read once: a code that stays in the history is useless. */
function takeReturned(): Record<string, string> | null {
  const parameters = query.peek();
  if (!parameters.has("state") || !(parameters.has("code") || parameters.has("error"))) return null;
  const returned: Record<string, string> = {};
  for (const name of ["state", "code", "iss", "error", "error_description"]) {
    const value = parameters.get(name);
    if (value !== null) returned[name] = value;
  }
  go(to(["login"], { next: sessionStorage.getItem(NEXT) }), "replace");
  sessionStorage.removeItem(NEXT);
  return returned;
}

/** An address of this page only: `//host` would lead away from it, and so would one with a tab between, which browsers drop. */
const ownAddress = (wanted: string | null): string => (wanted !== null && /^\/(?![/\\])[^\x00-\x1f]*$/.test(wanted) ? fromElsewhere(wanted) : "/");

export function Login() {
  const { mechanisms, login, bootstrap_servers: servers, oidc } = session.value!;
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const [mechanism, setMechanism] = useState(mechanisms[0] ?? "");
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const next = ownAddress(query.value.get("next"));
  const enter = async (address: string, body: unknown) => {
    setBusy(true);
    setProblem(null);
    try {
      const found = await call<Session>("POST", address, body);
      forget();
      keepDraftsOf(found.user);
      session.value = found;
      go(ownAddress(query.peek().get("next")), "replace");
    } catch (error) {
      setProblem(textOf(error));
      setBusy(false);
    }
  };
  useEffect(() => {
    const returned = takeReturned();
    if (returned) void enter("/api/session/oidc/code", returned);
  }, []);
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
  const takesPasswords = mechanisms.length > 0;
  const submit = (event: Event) => {
    event.preventDefault();
    void enter("/api/session", { user, password, ...(mechanism ? { mechanism } : {}) });
  };
  const leave = async () => {
    setBusy(true);
    setProblem(null);
    try {
      const { address } = await call<{ address: string }>("POST", "/api/session/oidc");
      sessionStorage.setItem(NEXT, next);
      location.assign(address);
    } catch (error) {
      setProblem(textOf(error));
      setBusy(false);
    }
  };
  return (
    <form class="card" onSubmit={submit}>
      <h1>Log in</h1>
      <p class="soft">
        {takesPasswords ? "With a SASL user of the cluster at " : "To the cluster at "}
        <code>{servers}</code>. Everything you do here happens with {takesPasswords ? "that user's" : "your"} rights.
      </p>
      {oidc ? (
        <button class={takesPasswords ? "plain" : "primary"} type="button" disabled={isBusy} onClick={() => void leave()}>
          Log in at {oidc}
        </button>
      ) : null}
      {takesPasswords ? (
        <>
          <TextField label="User" value={user} onChange={setUser} isFocused isRequired autocomplete="username" />
          <TextField label="Password" type="password" value={password} onChange={setPassword} isRequired autocomplete="current-password" />
        </>
      ) : null}
      {takesPasswords || oidc ? null : (
        <p class="failure" role="alert">
          No login is possible here: the listener supports neither SCRAM nor PLAIN, and the console has no identity provider. Set ottla.console.oidc.issuer, or add a mechanism to sasl.enabled.mechanisms.
        </p>
      )}
      {mechanisms.length > 1 ? <SelectField label="Mechanism" value={mechanism} options={mechanisms.map((name) => [name, name] as const)} onChange={setMechanism} /> : null}
      {problem ? (
        <p class="failure" role="alert">
          {problem}
        </p>
      ) : null}
      {takesPasswords ? (
        <button class="primary" type="submit" disabled={isBusy}>
          {isBusy ? "Logging in …" : "Log in"}
        </button>
      ) : null}
    </form>
  );
}
