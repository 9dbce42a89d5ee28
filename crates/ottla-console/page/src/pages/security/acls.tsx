import { query, setQuery } from "../../address";
import { api, call, session } from "../../api";
import { useDraft } from "../../draft";
import { visible } from "../../format";
import { useList } from "../../load";
import { Dialog, Opens, isDialogOpen, openDialog } from "../../parts/dialog";
import { Choice, Search, SelectField, TextField } from "../../parts/fields";
import { ListTable } from "../../parts/list";
import { say } from "../../parts/notices";
import { Badge, Empty } from "../../parts/states";
import type { Column } from "../../parts/table";
import type { Acl } from "../../wire";
import { CLUSTER, OPERATIONS, principalProblem, sentence } from "./acl_words";
import { Explain } from "./explain";

const NEW: Acl = { resource_type: "topic", resource_name: "", pattern_type: "literal", principal: "User:", host: "*", operation: "read", permission: "allow" };

export function Acls() {
  const search = query.value.get("search") ?? "";
  const acls = useList<Acl>(api(["acls"], { search }), 15_000);
  if (acls.problem?.code === "SECURITY_DISABLED") {
    return (
      <Empty title="The cluster has no authorizer">
        <p>
          Everyone may do everything. To use ACLs, set <code>authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer</code> on all brokers and controllers, with <code>super.users</code>, and restart them.
        </p>
      </Empty>
    );
  }
  const columns: Column<Acl>[] = [
    { id: "principal", title: "Principal", width: 200, cell: (acl) => visible(acl.principal) },
    { id: "permission", title: "Permission", width: 110, cell: (acl) => <Badge tone={acl.permission === "deny" ? "bad" : "good"}>{acl.permission}</Badge> },
    { id: "operation", title: "Operation", width: 140, cell: (acl) => acl.operation },
    {
      id: "resource",
      title: "Resource",
      cell: (acl) => (
        <>
          <span class="soft">{acl.resource_type}</span> {visible(acl.resource_name)}
          {acl.pattern_type === "prefixed" ? <Badge>prefix</Badge> : null}
        </>
      ),
    },
    { id: "host", title: "Host", width: 120, isExtra: true, cell: (acl) => acl.host },
    {
      id: "delete",
      title: "",
      width: 76,
      cell: (acl) =>
        session.value?.read_only ? null : (
          <button type="button" class="plain" aria-label={`Delete: ${sentence(acl)}`} onClick={() => openDialog("delete-acl", { of: JSON.stringify(acl) })}>
            Delete
          </button>
        ),
    },
  ];
  return (
    <>
      <div class="bar">
        <Search label="Search principals and resources" />
        <span class="spring" />
        <button type="button" onClick={() => openDialog("explain")}>
          Explain a decision
        </button>
        <Opens dialog="create-acl">Create ACL</Opens>
      </div>
      <ListTable list={acls} what="ACLs" label="ACLs" columns={columns}>
        {search ? (
          <Empty title="No ACL matches">
            <p>
              <button type="button" onClick={() => setQuery({ search: null })}>
                Show all ACLs
              </button>
            </p>
          </Empty>
        ) : (
          <Empty title="There are no ACLs">
            <p>Only super users may do anything, unless allow.everyone.if.no.acl.found is set. Create one to let a user read a topic, for instance.</p>
          </Empty>
        )}
      </ListTable>
      {isDialogOpen("explain") ? <Explain /> : null}
      {isDialogOpen("create-acl") ? <CreateAcl reload={acls.reload} /> : null}
      {isDialogOpen("delete-acl") ? <DeleteAcl text={query.value.get("of") ?? ""} reload={acls.reload} /> : null}
    </>
  );
}

function CreateAcl({ reload }: { reload: () => void }) {
  const [acl, change, drop] = useDraft("create-acl", NEW);
  const operations = OPERATIONS[acl.resource_type] ?? ["all"];
  const isCluster = acl.resource_type === "cluster";
  const whole: Acl = { ...acl, resource_name: isCluster ? CLUSTER : acl.resource_name, pattern_type: isCluster ? "literal" : acl.pattern_type };
  const problem = principalProblem(acl.principal);
  const isWhole = problem === null && acl.principal !== "User:" && whole.resource_name !== "";
  const run = async () => {
    await call("POST", api(["acls"]), whole);
    drop();
    say(`ACL created: ${sentence(whole)}.`);
    reload();
  };
  return (
    <Dialog title="Create ACL" action="Create ACL" run={run} isReady={isWhole && operations.includes(acl.operation)}>
      <TextField label="Principal" value={acl.principal} onChange={(principal) => change({ principal })} problem={problem} hint="User:alice, or User:* for everyone" isFocused />
      <Choice label="Permission" value={acl.permission} options={[["allow", "Allow"], ["deny", "Deny"]]} onChange={(permission) => change({ permission })} />
      <div class="row">
        <SelectField
          label="Resource"
          value={acl.resource_type}
          options={Object.keys(OPERATIONS).map((name) => [name, name.replaceAll("_", " ")] as const)}
          onChange={(resource_type) => change({ resource_type, operation: OPERATIONS[resource_type]?.includes(acl.operation) ? acl.operation : (OPERATIONS[resource_type]?.[0] ?? "all") })}
        />
        <SelectField label="Operation" value={acl.operation} options={operations.map((name) => [name, name.replaceAll("_", " ")] as const)} onChange={(operation) => change({ operation })} />
      </div>
      {isCluster ? null : (
        <div class="row">
          <TextField label="Name" value={acl.resource_name} onChange={(resource_name) => change({ resource_name })} hint="* is every one" />
          <SelectField
            label="Match"
            value={acl.pattern_type}
            options={[
              ["literal", "exactly this name"],
              ["prefixed", "names that begin so"],
            ]}
            onChange={(pattern_type) => change({ pattern_type })}
          />
        </div>
      )}
      <TextField label="Host" value={acl.host} onChange={(host) => change({ host })} hint="An IP address; * is every host" />
      {isWhole ? <p>{visible(sentence(whole))}.</p> : null}
    </Dialog>
  );
}

function DeleteAcl({ text, reload }: { text: string; reload: () => void }) {
  let acl: Acl;
  try {
    acl = { ...NEW, ...(JSON.parse(text) as Partial<Acl>) };
  } catch {
    return null;
  }
  const run = async () => {
    await call("DELETE", api(["acls"]), acl);
    say(`ACL deleted: ${sentence(acl)}.`);
    reload();
  };
  return (
    <Dialog title="Delete ACL" action="Delete ACL" isDangerous run={run}>
      <p>
        Deletes exactly this one: <b>{visible(sentence(acl))}</b>. {acl.permission === "deny" ? "The other ACLs then decide the requests that it denies." : "Requests that it allows are denied at once, also for running programs, unless another ACL allows them."}
      </p>
    </Dialog>
  );
}
