/** Why a principal may do something, or may not. The question is in the address; the answer follows the brokers' own rules. */
import { query, setQuery } from "../../address";
import { api } from "../../api";
import { useDraft } from "../../draft";
import { visible } from "../../format";
import { useGet } from "../../load";
import { Dialog } from "../../parts/dialog";
import { SelectField, TextField } from "../../parts/fields";
import { Badge, Failure, Loading } from "../../parts/states";
import type { AclDecision } from "../../wire";
import { OPERATIONS, principalProblem, sentence } from "./acl_words";

interface Question {
  principal: string;
  host: string;
  resource_type: string;
  resource_name: string;
  operation: string;
}

const NEW: Question = { principal: "User:", host: "", resource_type: "topic", resource_name: "", operation: "all" };

/** The question in an address, which anybody may have written. */
function questionOf(text: string | null): Question | null {
  try {
    const given: unknown = JSON.parse(text ?? "null");
    if (!given || typeof given !== "object") return null;
    const fields = given as Record<string, unknown>;
    const field = (name: keyof Question): string => {
      const value = fields[name];
      return typeof value === "string" ? value : NEW[name];
    };
    return { principal: field("principal"), host: field("host"), resource_type: field("resource_type"), resource_name: field("resource_name"), operation: field("operation") };
  } catch {
    return null;
  }
}

export function Explain() {
  const asked = questionOf(query.value.get("of"));
  const [question, change, drop] = useDraft<Question>("explain", asked ?? NEW);
  const operations = OPERATIONS[question.resource_type] ?? ["all"];
  const isCluster = question.resource_type === "cluster";
  const problem = principalProblem(question.principal);
  const isReady = problem === null && question.principal !== "User:" && (isCluster || question.resource_name !== "");
  const explain = async () => {
    drop();
    setQuery({ of: JSON.stringify(question) });
    return "stay" as const;
  };
  return (
    <Dialog title="Explain a decision" isWide isReady={isReady} run={explain}>
      <div class="row">
        <TextField label="Principal" value={question.principal} onChange={(principal) => change({ principal })} problem={problem} hint="User:alice" isFocused />
        <TextField label="Host" value={question.host} onChange={(host) => change({ host })} hint="Its IP address; without it, only ACLs for every host count" />
      </div>
      <div class="row">
        <SelectField
          label="Resource"
          value={question.resource_type}
          options={Object.keys(OPERATIONS).map((name) => [name, name.replaceAll("_", " ")] as const)}
          onChange={(resource_type) => change({ resource_type, operation: OPERATIONS[resource_type]?.includes(question.operation) ? question.operation : "all" })}
        />
        {isCluster ? null : <TextField label="Name" value={question.resource_name} onChange={(resource_name) => change({ resource_name })} />}
        <SelectField label="Operation" value={question.operation} options={operations.map((name) => [name, name.replaceAll("_", " ")] as const)} onChange={(operation) => change({ operation })} />
      </div>
      <p>
        <button type="submit" class="primary" disabled={!isReady}>
          Explain
        </button>
      </p>
      {asked ? <Decisions question={asked} /> : null}
    </Dialog>
  );
}

function Decisions({ question }: { question: Question }) {
  const { data, problem, reload } = useGet<{ items: AclDecision[]; notes: string[] }>(api(["acls", "explanation"], { ...question }));
  if (!data) return problem ? <Failure problem={problem} retry={reload} /> : <Loading what="the decision" />;
  const resource = question.resource_type === "cluster" ? "the cluster" : `${question.resource_type.replaceAll("_", " ")} ${question.resource_name}`;
  return (
    <section aria-live="polite">
      <p>
        {visible(question.principal)} on {visible(resource)} from {question.host === "" ? "every host" : visible(question.host)}:
      </p>
      <ul>
        {data.items.map((decision) => (
          <li key={decision.operation}>
            <Badge tone={decision.is_allowed ? "good" : "bad"}>{decision.is_allowed ? "allowed" : "denied"}</Badge> <b>{decision.operation.replaceAll("_", " ")}</b>, because {decision.because}
            {decision.acl ? `: ${visible(sentence(decision.acl))}` : ""}.{" "}
            {decision.remark ? `But ${decision.remark}. ` : ""}
            {decision.also_matching.map((acl) => `Also matches: ${visible(sentence(acl))}. `)}
            {decision.elsewhere.map((acl) => `Elsewhere: ${visible(sentence(acl))}. `)}
            {decision.to_allow.length > 0 ? <span class="soft">To allow it: </span> : null}
            {decision.to_allow.map((command, index) => (
              <code key={index}>{visible(command)} </code>
            ))}
          </li>
        ))}
      </ul>
      {data.notes.map((note, index) => (
        <p key={index} class="hint">
          {visible(note)}
        </p>
      ))}
    </section>
  );
}
