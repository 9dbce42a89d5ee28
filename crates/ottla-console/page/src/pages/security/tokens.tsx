/** Delegation tokens. The HMAC of a token is its password: it is shown once, and kept nowhere. */
import { useState } from "preact/hooks";

import { query } from "../../address";
import { api, call, session } from "../../api";
import { ago, duration, time, visible } from "../../format";
import { useList } from "../../load";
import { Dialog, Opens, isDialogOpen, openDialog } from "../../parts/dialog";
import { Choice, Search, TextField } from "../../parts/fields";
import { ListTable } from "../../parts/list";
import { say } from "../../parts/notices";
import { Empty, Facts } from "../../parts/states";
import type { Column } from "../../parts/table";
import type { NewToken, Token } from "../../wire";
import { principalProblem } from "./acl_words";

const HOUR_MS = 3_600_000;

export function Tokens() {
  const search = query.value.get("search") ?? "";
  const tokens = useList<Token>(api(["delegation-tokens"], { search }), 15_000);
  if (tokens.problem?.code === "DELEGATION_TOKEN_AUTH_DISABLED") {
    return (
      <Empty title="The cluster has no delegation tokens">
        <p>
          To use them, set <code>delegation.token.secret.key</code> to the same secret on all brokers and controllers, and restart them.
        </p>
      </Empty>
    );
  }
  if (tokens.problem?.code === "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED") {
    return (
      <Empty title="Delegation tokens need a login">
        <p>The cluster shows and creates tokens only over connections with a login that is not itself made with a token. Give the console a listener with SASL, and a user or logins.</p>
      </Empty>
    );
  }
  const columns: Column<Token>[] = [
    { id: "id", title: "Token", cell: (it) => visible(it.token_id) },
    { id: "owner", title: "Owner", width: 170, cell: (it) => visible(it.owner) },
    { id: "renewers", title: "Renewed by", width: 200, isExtra: true, cell: (it) => visible(it.renewers.join(", ")) || "the owner" },
    { id: "expires", title: "Expires", width: 160, cell: (it) => <span title={time(it.expires)}>in {duration(Math.max(0, it.expires - Date.now()))}</span> },
    { id: "max", title: "At the latest", width: 200, isExtra: true, cell: (it) => <span title={`created ${ago(it.issued)}`}>{time(it.max).slice(0, 16)}</span> },
    ...(session.value?.read_only
      ? []
      : [
          {
            id: "change",
            title: "",
            width: 160,
            cell: (it: Token) => (
              <>
                <button type="button" class="plain" aria-label={`Renew token ${it.token_id}`} onClick={() => openDialog("renew", { name: it.token_id })}>
                  Renew
                </button>
                <button type="button" class="plain" aria-label={`Expire token ${it.token_id}`} onClick={() => openDialog("expire", { name: it.token_id })}>
                  Expire
                </button>
              </>
            ),
          },
        ]),
  ];
  const name = query.value.get("name");
  const chosen = name === null ? undefined : Array.from({ length: tokens.total ?? 0 }, (_, index) => tokens.row(index)).find((it) => it?.token_id === name);
  return (
    <>
      <div class="bar">
        <Search label="Search tokens, owners and renewers" />
        <span class="spring" />
        <Opens dialog="create-token">Create token</Opens>
      </div>
      <ListTable list={tokens} what="delegation tokens" label="Delegation tokens" columns={columns}>
        <Empty title={search ? "No token matches" : "There are no delegation tokens"}>
          <p>A program that has a token logs in as the owner of the token, with SCRAM, without the owner's password. The list contains your own tokens, tokens that you may renew, and tokens that an ACL lets you describe.</p>
        </Empty>
      </ListTable>
      {isDialogOpen("create-token") ? <CreateToken reload={tokens.reload} /> : null}
      {isDialogOpen("renew") && chosen ? <Renew token={chosen} reload={tokens.reload} /> : null}
      {isDialogOpen("expire") && chosen ? <Expire token={chosen} reload={tokens.reload} /> : null}
    </>
  );
}

/** The milliseconds of a number of hours; null if it is none. */
function hoursToMs(hours: string): number | null {
  const ms = Math.round(Number(hours) * HOUR_MS);
  return hours.trim() !== "" && Number.isFinite(ms) && ms > 0 ? ms : null;
}

function CreateToken({ reload }: { reload: () => void }) {
  const [owner, setOwner] = useState("");
  const [renewers, setRenewers] = useState("");
  const [hours, setHours] = useState("");
  const [created, setCreated] = useState<NewToken | null>(null);
  const listed = renewers.split(",").map((it) => it.trim()).filter(Boolean);
  const wrong = listed.map(principalProblem).find((it) => it !== null) ?? null;
  const ownerProblem = owner === "" ? null : principalProblem(owner);
  if (created !== null) return <Created token={created} />;
  const run = async () => {
    setCreated(await call<NewToken>("POST", api(["delegation-tokens"]), { owner: owner || null, renewers: listed, max_lifetime_ms: hours === "" ? null : hoursToMs(hours) }));
    reload();
    return "stay" as const;
  };
  return (
    <Dialog title="Create token" action="Create token" run={run} isReady={ownerProblem === null && wrong === null && (hours === "" || hoursToMs(hours) !== null)}>
      <p>The token grants all rights of its owner until it expires.</p>
      <TextField label="Owner" value={owner} onChange={setOwner} problem={ownerProblem} hint="Empty: you. For User:alice you need the right to create tokens for that user" isFocused />
      <TextField label="Renewed by" value={renewers} onChange={setRenewers} problem={wrong} hint="Besides the owner: User:bob, User:carol" />
      <TextField label="Hours at most" type="number" min={0} value={hours} onChange={setHours} problem={hours === "" || hoursToMs(hours) !== null ? null : "more than 0"} hint="Including renewals. Empty: the maximum of the brokers" />
    </Dialog>
  );
}

function Created({ token }: { token: NewToken }) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(token.hmac);
      say("The HMAC is copied.");
    } catch {
      say("The browser does not let the page copy; select the HMAC.", true);
    }
  };
  return (
    <Dialog title="Token created">
      <p role="status">
        This is the only time that the HMAC is shown. Programs log in with the ID as their name, the HMAC as their password, and <code>tokenauth="true"</code>.
      </p>
      <Facts
        facts={[
          ["Token ID", <code>{token.token_id}</code>],
          ["HMAC", <code>{token.hmac}</code>],
          ["Owner", visible(token.owner)],
          ["Expires", `${time(token.expires)}, if it is not renewed; at the latest ${time(token.max)}`],
        ]}
      />
      <p>
        <button type="button" onClick={() => void copy()}>
          Copy the HMAC
        </button>
      </p>
    </Dialog>
  );
}

const change = (token: Token, what: "renew" | "expire", period_ms: number | null) => call<{ expires: number }>("POST", api(["delegation-tokens", token.token_id, what]), { period_ms });

function Renew({ token, reload }: { token: Token; reload: () => void }) {
  const [hours, setHours] = useState("");
  const isFine = hours === "" || hoursToMs(hours) !== null;
  const run = async () => {
    const { expires } = await change(token, "renew", hours === "" ? null : hoursToMs(hours));
    say(`Token ${token.token_id} expires ${time(expires)} now.`);
    reload();
  };
  return (
    <Dialog title={`Renew token ${token.token_id}`} action="Renew" run={run} isReady={isFine}>
      <p>
        It expires {time(token.expires)}, and cannot be renewed beyond {time(token.max)}, {duration(Math.max(0, token.max - Date.now()))} from now.
      </p>
      <TextField label="Hours from now" type="number" min={0} value={hours} onChange={setHours} problem={isFine ? null : "more than 0"} hint="Empty: the default of the brokers" isFocused />
    </Dialog>
  );
}

function Expire({ token, reload }: { token: Token; reload: () => void }) {
  const [when, setWhen] = useState<"now" | "later">("now");
  const [hours, setHours] = useState("1");
  const isFine = when === "now" || hoursToMs(hours) !== null;
  const run = async () => {
    const { expires } = await change(token, "expire", when === "now" ? null : hoursToMs(hours));
    say(when === "now" ? `Token ${token.token_id} is expired.` : `Token ${token.token_id} expires ${time(expires)} now.`);
    reload();
  };
  return (
    <Dialog title={`Expire token ${token.token_id}`} action={when === "now" ? "Expire now" : "Set expiry"} isDangerous run={run} isReady={isFine}>
      <p>
        Programs that have this token of <b>{visible(token.owner)}</b> cannot log in any more once it is expired. It would expire {time(token.expires)} otherwise.
      </p>
      <Choice
        label="When"
        value={when}
        options={[
          ["now", "Now"],
          ["later", "In some hours"],
        ]}
        onChange={setWhen}
      />
      {when === "later" ? <TextField label="Hours from now" type="number" min={0} value={hours} onChange={setHours} problem={isFine ? null : "more than 0"} /> : null}
    </Dialog>
  );
}
