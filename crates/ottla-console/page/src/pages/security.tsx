/** Security: ACLs, SCRAM users, delegation tokens, quotas. */
import { segments } from "../address";
import { Head, Tabs } from "../parts/head";
import { Acls } from "./security/acls";
import { Quotas } from "./security/quotas";
import { Tokens } from "./security/tokens";
import { Users } from "./security/users";

export function Security() {
  const [, tab = ""] = segments.value;
  return (
    <div class="full">
      <Head title="Security" />
      <Tabs
        label="Security"
        tabs={[
          { path: ["security"], name: "ACLs" },
          { path: ["security", "users"], name: "SCRAM users" },
          { path: ["security", "tokens"], name: "Delegation tokens" },
          { path: ["security", "quotas"], name: "Quotas" },
        ]}
      />
      {tab === "users" ? <Users /> : tab === "tokens" ? <Tokens /> : tab === "quotas" ? <Quotas /> : <Acls />}
    </div>
  );
}
