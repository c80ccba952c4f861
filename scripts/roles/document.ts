import type { RoleRights, RuntimeRole, TableRights } from "./probe.ts";

const meanings: Readonly<Record<RuntimeRole, string>> = {
  gateway: "The public API, one tenant at a time.",
  controller: "Drives executions, sessions and sandboxes and answers callbacks, one tenant at a time.",
  worker: "Runs Work, one tenant at a time.",
  producer: "Submits Work and nothing else.",
  dispatcher: "Sees leases, positions, slots and processes of all tenants, and no payload.",
  operator: "Makes tenants, principals and tokens; inspects; drains; audited overrides.",
  retention: "Removes what its retention ended.",
};

/** `docs/reference/roles.md`: what each role could do when everything was tried. */
export function rolesDocument(all: readonly RoleRights[]): string {
  return `# Roles

<!-- Written by \`npm run generate\` from what each role could do when everything was tried. A test tries it again. -->

\`holdfast schema roles\` makes them; again it changes nothing. None can log in, and none is a member of another: a
process has a login that is granted the roles which it plays, WITH INHERIT FALSE, SET TRUE, and takes one a connection.
\`holdfast_owner\` owns the schema and applies migrations; no process that serves may become it. No role of a process
owns anything, bypasses row-level security or may change the schema, and PUBLIC has nothing at all.

*Whose* says which rows of a table row-level security lets the role reach. *its tenant's* are those of the tenant that
the transaction names; without one it reaches none. A table that a role's list leaves out is closed to it.
${all.map(roleText).join("")}`;
}

function roleText({ role, tables, functions, sequences }: RoleRights): string {
  const rows = tables.filter(isReached).map(tableText);
  const names = functions.map((name) => `\`${name.replace(/^holdfast\./, "").replace(/\(.*$/, "")}\``);
  return `
## holdfast_${role}

${meanings[role]}

| table | whose | reads | inserts | changes | deletes |
|---|---|---|---|---|---|
${rows.join("\n")}

Functions: ${[...new Set(names)].join(", ")}.
${sequences.length === 0 ? "" : `\nSequences: ${sequences.map((name) => `\`${name}\``).join(", ")}.\n`}`;
}

function isReached({ reads, inserts, updates, deletes }: TableRights): boolean {
  return deletes || reads.length + inserts.length + updates.length > 0;
}

function tableText(rights: TableRights): string {
  const { table, columns, writable, rows, reads, inserts, updates, deletes } = rights;
  const words = (some: readonly string[], all: readonly string[]) => {
    if (some.length === 0) return "";
    return some.length === all.length ? "all" : some.join(", ");
  };
  return `| \`${table}\` | ${rows} | ${words(reads, columns)} | ${words(inserts, writable)} | ${words(updates, writable)} | ${deletes ? "yes" : ""} |`;
}
