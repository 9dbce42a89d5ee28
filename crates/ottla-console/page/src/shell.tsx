/** The frame of every page: navigation, session, keys, notices. */
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { go, here, segments, to } from "./address";
import { Problem, call, get, session, textOf } from "./api";
import { dropDrafts, keepDraftsOf } from "./draft";
import { bound, useKeys } from "./keys";
import { forget } from "./load";
import { Brokers } from "./pages/brokers";
import { Cluster } from "./pages/cluster";
import { Group } from "./pages/group";
import { Groups } from "./pages/groups";
import { Login } from "./pages/login";
import { Measure } from "./pages/measure";
import { Security } from "./pages/security";
import { Topic } from "./pages/topic";
import { Topics } from "./pages/topics";
import { Transactions } from "./pages/transactions";
import { Dialog } from "./parts/dialog";
import { useCurrentInView } from "./parts/head";
import { Notices, say } from "./parts/notices";
import { Failure, Loading } from "./parts/states";
import { isDark, nextTheme, theme } from "./screen";
import type { Session } from "./wire";

const PAGES: readonly { path: string; name: string; key: string }[] = [
  { path: "", name: "Cluster", key: "c" },
  { path: "topics", name: "Topics", key: "t" },
  { path: "groups", name: "Groups", key: "g" },
  { path: "transactions", name: "Transactions", key: "x" },
  { path: "security", name: "Security", key: "s" },
  { path: "brokers", name: "Brokers", key: "b" },
  { path: "measure", name: "Measure", key: "m" },
];
const RETRY_MS = 3000;

export function Shell() {
  const [problem, setProblem] = useState<Problem | null>(null);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let timer = 0;
    get<Session>("/api/session").then(
      (found) => {
        if (found.login !== "required") keepDraftsOf(found.user);
        session.value = found;
        setProblem(null);
        const isAtLogin = segments.peek()[0] === "login";
        if (found.login === "required" && !isAtLogin) go(to(["login"], { next: here.peek() }), "replace");
      },
      (error: unknown) => {
        setProblem(error instanceof Problem ? error : new Problem(0, textOf(error)));
        timer = setTimeout(() => setTurn((before) => before + 1), RETRY_MS);
      },
    );
    return () => clearTimeout(timer);
  }, [turn]);

  const [first = ""] = segments.value;
  if (!session.value) {
    return (
      <main class="alone">
        <Brand />
        {problem ? <Failure problem={problem} retry={() => setTurn(turn + 1)} /> : <Loading what="the console" />}
      </main>
    );
  }
  if (first === "login") {
    return (
      <main class="alone">
        <Brand />
        <Login />
      </main>
    );
  }
  return <Frame page={first}>{pageFor(first)}</Frame>;
}

function pageFor(first: string): JSX.Element {
  switch (first) {
    case "":
      return <Cluster />;
    case "topics": {
      const [, name] = segments.value;
      return name === undefined ? <Topics /> : <Topic key={name} name={name} />;
    }
    case "groups": {
      const [, name] = segments.value;
      return name === undefined ? <Groups /> : <Group key={name} name={name} />;
    }
    case "transactions":
      return <Transactions />;
    case "security":
      return <Security />;
    case "brokers":
      return <Brokers />;
    case "measure":
      return <Measure />;
    default:
      return (
        <>
          <h1>There is no such page</h1>
          <p>
            The address <code>{here.value}</code> names no page. <a href="/">Go to the cluster</a> or <a href="/topics">to its topics</a>.
          </p>
        </>
      );
  }
}

function Brand() {
  return (
    <a class="brand" href="/">
      <img src="/icon.svg" alt="" width={20} height={20} />
      <b>Ottla</b> <span>console</span>
    </a>
  );
}

function Frame({ page, children }: { page: string; children: ComponentChildren }) {
  const [areKeysShown, showKeys] = useState(false);
  const navigation = useRef<HTMLElement>(null);
  useCurrentInView(navigation, page);
  useKeys([
    ...PAGES.map(({ path, name, key }) => ({ keys: `g ${key}`, does: `go to ${name.toLowerCase()}`, run: () => go("/" + path) })),
    { keys: "?", does: "show the keys", run: () => showKeys(true) },
  ]);
  const { user, login, read_only: isReadOnly, bootstrap_servers: servers, version } = session.value!;
  useEffect(() => {
    const at = segments.value.filter(Boolean);
    document.title = [at.slice(1, 3).reverse().join(" · "), PAGES.find((it) => it.path === page)?.name ?? page, "Ottla console"].filter(Boolean).join(" – ");
  }, [page, segments.value.join("/")]);
  const logOut = async () => {
    try {
      const left = await call<{ address: string } | undefined>("DELETE", "/api/session");
      forget();
      dropDrafts();
      if (left) {
        location.assign(left.address);
        return;
      }
      session.value = await get<Session>("/api/session");
      go("/login");
    } catch (error) {
      say(textOf(error), true);
    }
  };
  return (
    <div class="frame">
      <a class="skip" href="#content">
        Skip to the content
      </a>
      <header class="side">
        <Brand />
        <nav aria-label="Pages" ref={navigation}>
          {PAGES.map(({ path, name, key }) => (
            <a key={path} href={"/" + path} aria-current={page === path ? "page" : undefined}>
              <span>{name}</span>
              <kbd aria-hidden="true">g {key}</kbd>
            </a>
          ))}
        </nav>
        <div class="session">
          <div class="soft" title={servers}>
            {servers}
          </div>
          {user ? <div class="user">{user}</div> : null}
          {isReadOnly ? <div class="badge warn">read-only</div> : null}
          <div class="tools">
            <button type="button" class="plain" onClick={nextTheme} title={`Colours: ${theme.value}`}>
              {theme.value === "system" ? (isDark.value ? "Light" : "Dark") : isDark.value ? "Light" : "System"}
            </button>
            <button type="button" class="plain" onClick={() => showKeys(true)}>
              Keys
            </button>
            {login === "done" ? (
              <button type="button" class="plain" onClick={() => void logOut()}>
                Log out
              </button>
            ) : null}
          </div>
          <div class="soft version">{version}</div>
        </div>
      </header>
      <main id="content" tabIndex={-1}>
        {children}
      </main>
      <Notices />
      {areKeysShown ? <Keys onClose={() => showKeys(false)} /> : null}
    </div>
  );
}

function Keys({ onClose }: { onClose: () => void }) {
  const keys = [...new Map(bound.value.map((key) => [key.keys, key])).values()];
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl class="keys">
        {keys.map((key) => (
          <div key={key.keys}>
            <dt>
              {key.keys.split(" ").map((part) => (
                <kbd key={part}>{part}</kbd>
              ))}
            </dt>
            <dd>{key.does}</dd>
          </div>
        ))}
        <div>
          <dt>
            <kbd>Enter</kbd>
          </dt>
          <dd>open the row</dd>
        </div>
        <div>
          <dt>
            <kbd>Esc</kbd>
          </dt>
          <dd>close, or leave the search</dd>
        </div>
      </dl>
    </Dialog>
  );
}
