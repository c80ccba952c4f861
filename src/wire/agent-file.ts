import { Compile } from "typebox/compile";
import { AgentSubmission } from "./agent.ts";
import { agentRuleProblems } from "./agent-rules.ts";
import { parseFile } from "./job-file.ts";
import { type Problem, schemaProblems } from "./schema-problems.ts";

const validator = Compile(AgentSubmission);

/** An agent file, as a job file is read. */
export function parseAgentFile(content: string | Uint8Array, name: string): AgentSubmission {
  return parseFile(content, name, agentProblems) as AgentSubmission; // it has no problem
}

function agentProblems(value: unknown): Problem[] {
  if (validator.Check(value)) return agentRuleProblems(value.spec);
  const problems = schemaProblems(AgentSubmission, value);
  return problems.length > 0 ? problems : [{ pointer: "", message: "is not a valid agent", at: "value" }];
}
