import { useState } from "preact/hooks";

import { query } from "../../address";
import { api, call, session } from "../../api";
import { count, visible } from "../../format";
import { useList } from "../../load";
import { Dialog, Opens, isDialogOpen, openDialog } from "../../parts/dialog";
import { Search, SelectField, TextField } from "../../parts/fields";
import { ListTable } from "../../parts/list";
import { say } from "../../parts/notices";
import { Badge, Empty } from "../../parts/states";
import type { Column } from "../../parts/table";
import type { User } from "../../wire";

export function Users() {
  const search = query.value.get("search") ?? "";
  const users = useList<User>(api(["users"], { search }), 15_000);
  const mayChange = !session.value?.read_only;
  const columns: Column<User>[] = [
    { id: "user", title: "User", cell: (it) => visible(it.user) },
    {
      id: "credentials",
      title: "Credentials",
      width: 380,
      cell: (it) =>
        it.credentials.map((credential) => (
          <Badge key={credential.mechanism} title={`${count(credential.iterations)} iterations`}>
            {credential.mechanism} {count(credential.iterations)}
          </Badge>
        )),
    },
    ...(mayChange
      ? [
          {
            id: "change",
            title: "",
            width: 180,
            cell: (it: User) => (
              <>
                <button type="button" class="plain" aria-label={`Set password of ${it.user}`} onClick={() => openDialog("password", { name: it.user })}>
                  Set password
                </button>
                <button type="button" class="plain" aria-label={`Delete user ${it.user}`} onClick={() => openDialog("delete-user", { name: it.user })}>
                  Delete
                </button>
              </>
            ),
          },
        ]
      : []),
  ];
  return (
    <>
      <div class="bar">
        <Search label="Search users" />
        <span class="spring" />
        <Opens dialog="password">Add user</Opens>
      </div>
      <ListTable list={users} what="users" label="SCRAM users" columns={columns}>
        <Empty title={search ? "No user matches" : "There are no SCRAM users"}>
          <p>Users of SASL/SCRAM are kept in the cluster's metadata. Users of PLAIN, OAUTHBEARER or TLS certificates are not listed here.</p>
        </Empty>
      </ListTable>
      {isDialogOpen("password") ? <SetPassword name={query.value.get("name")} reload={users.reload} /> : null}
      {isDialogOpen("delete-user") ? <DeleteUser name={query.value.get("name") ?? ""} reload={users.reload} /> : null}
    </>
  );
}

function SetPassword({ name, reload }: { name: string | null; reload: () => void }) {
  const [user, setUser] = useState(name ?? "");
  const [password, setPassword] = useState("");
  const [mechanism, setMechanism] = useState<"SCRAM-SHA-256" | "SCRAM-SHA-512">("SCRAM-SHA-512");
  const [iterations, setIterations] = useState("8192");
  const rounds = Number(iterations);
  const isFine = rounds >= 4096 && rounds <= 16384;
  const run = async () => {
    await call("PUT", api(["users", user]), { mechanism, password, iterations: rounds });
    say(`The password of ${user} is set for ${mechanism}.`);
    reload();
  };
  return (
    <Dialog title={name === null ? "Add user" : `Set the password of ${name}`} action={name === null ? "Add user" : "Set password"} run={run} isReady={user !== "" && password !== "" && isFine}>
      {name === null ? <TextField label="User" value={user} onChange={setUser} isFocused isRequired /> : <p>Connected programs stay connected; new logins need the new password. Credentials of the other mechanism keep their password.</p>}
      <TextField label="New password" type="password" value={password} onChange={setPassword} isRequired autocomplete="new-password" />
      <div class="row">
        <SelectField
          label="Mechanism"
          value={mechanism}
          options={[
            ["SCRAM-SHA-512", "SCRAM-SHA-512"],
            ["SCRAM-SHA-256", "SCRAM-SHA-256"],
          ]}
          onChange={setMechanism}
        />
        <TextField label="Iterations" type="number" min={4096} value={iterations} onChange={setIterations} problem={isFine ? null : "4096 to 16384"} />
      </div>
    </Dialog>
  );
}

function DeleteUser({ name, reload }: { name: string; reload: () => void }) {
  const run = async () => {
    await call("DELETE", api(["users", name]));
    say(`User ${name} is deleted.`);
    reload();
  };
  return (
    <Dialog title={`Delete user ${name}`} action="Delete user" isDangerous typed={name} run={run}>
      <p>Deletes the SCRAM credentials of the user, of all mechanisms. New logins fail; connections that are open stay until they end. ACLs and quotas that name the user stay.</p>
    </Dialog>
  );
}
