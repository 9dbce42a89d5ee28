/** Who may do what: ACLs, SCRAM users, quotas. */
import { segments } from "../address";
import { Head, Tabs } from "../parts/head";
import { Acls } from "./security/acls";
import { Quotas } from "./security/quotas";
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
          { path: ["security", "quotas"], name: "Quotas" },
        ]}
      />
      {tab === "users" ? <Users /> : tab === "quotas" ? <Quotas /> : <Acls />}
    </div>
  );
}
