import { join } from "node:path";
import type { TenantId } from "../../src/core/ids.ts";
import { type Database, transition, view } from "../../src/core/postgres/transition.ts";
import { type ActivationRow, admitActivation, getActivation } from "../../src/sessions/activation.store.ts";
import { type ActivationState, hasEnded } from "../../src/sessions/activation.ts";
import { createAgent } from "../../src/sessions/agent.store.ts";
import { createSession, getSession, type SessionRow } from "../../src/sessions/session.store.ts";
import type { AgentSpec } from "../../src/wire/agent.ts";
import { until } from "./until.ts";

const wrapper = join(import.meta.dirname, "../../bin/holdfast-agent.mjs");

/**
 * An agent that remembers: each turn appends what it was told to `said.txt` and answers with all that is there. The
 * stimulus can ask it to do more: `sleep`, `fail`, `ask` for a permission, `quiet` (change nothing).
 */
const program = `
import { appendFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
const say = (message) => console.log(JSON.stringify(message));
let text = "";
for await (const part of process.stdin) text += part;
const { stimulus, permissions, run } = JSON.parse(text);
say({ type: "start", protocol: 1 });
say({ type: "event", name: "told", data: { text: stimulus.text, run } });
if (stimulus.mark) appendFileSync(stimulus.mark, stimulus.text + "\\n");
if (stimulus.until) while (!existsSync(stimulus.until)) await delay(20);
if (stimulus.fail !== undefined && run <= stimulus.fail) process.exit(9);
if (stimulus.ask !== undefined && !permissions.includes(stimulus.ask)) {
  say({ type: "outcome", required_action: { type: "grant_permission", permission: stimulus.ask, reason: "to go on" } });
  process.exit(0);
}
const before = existsSync("said.txt") ? readFileSync("said.txt", "utf8") : "";
if (!stimulus.quiet) writeFileSync("said.txt", before + stimulus.text + "\\n");
const said = (existsSync("said.txt") ? readFileSync("said.txt", "utf8") : "").split("\\n").slice(0, -1);
say({ type: "outcome", reply: { said } });
`;

/** What of its spec a test says. */
export function rememberingAgent(spec: Partial<AgentSpec> = {}): AgentSpec {
  return {
    command: [process.execPath, wrapper, "run", "--", process.execPath, "--input-type=module", "-e", program],
    timeout: "1m",
    grace: "1s",
    ...spec,
  };
}

export interface Sessions {
  readonly agent: (name: string, spec?: Partial<AgentSpec>) => Promise<void>;
  readonly create: (agent: string) => Promise<string>;
  readonly tell: (
    session: string,
    stimulus: Readonly<Record<string, unknown>>,
    id?: string,
  ) => Promise<string>;
  readonly read: (session: string, activation: string) => Promise<ActivationRow>;
  readonly session: (session: string) => Promise<SessionRow>;
  /** Waits until it is in one of the states, by default until it has ended. */
  readonly reaches: (
    session: string,
    activation: string,
    states?: readonly ActivationState[],
    within?: number,
  ) => Promise<ActivationRow>;
  readonly change: <T>(name: string, body: Parameters<typeof transition<T>>[2]) => Promise<T>;
}

/** Sessions as the gateway makes them. */
export function sessionsOf(db: Database, tenant: TenantId): Sessions {
  const scope = { role: "gateway", tenant } as const;
  const change: Sessions["change"] = (name, body) => transition(db, { ...scope, name }, body);
  const read: Sessions["read"] = (session, activation) =>
    view(db, { ...scope, name: "read" }, (tx) => getActivation(tx, session, activation));
  return {
    change,
    read,
    async agent(name, spec = {}) {
      await change("agent", (tx) =>
        createAgent(tx, {
          submission: {
            apiVersion: "holdfast/v1",
            kind: "Agent",
            metadata: { name },
            spec: rememberingAgent(spec),
          },
          defaultRuntime: "process",
        }),
      );
    },
    create: (agent) => change("session", async (tx) => (await createSession(tx, { agent })).session_id),
    tell: (session, stimulus, id) =>
      change("tell", async (tx) => {
        const given = id === undefined ? {} : { id };
        const { activation } = await admitActivation(tx, { session, stimulus, queueMax: 1000, ...given });
        return activation.activation_id;
      }),
    session: (session) => view(db, { ...scope, name: "read" }, (tx) => getSession(tx, session)),
    reaches: (session, activation, states, within) =>
      until(
        `activation ${activation} reaches ${states?.join(" or ") ?? "its end"}`,
        async () => {
          const row = await read(session, activation);
          const state = row.state as ActivationState;
          if (states === undefined ? hasEnded(state) : states.includes(state)) return row;
          if (hasEnded(state)) {
            const why = JSON.stringify([row.failure_code, row.failure_message, row.last_failure_message]);
            throw new Error(`it is ${state}: ${why}`);
          }
          return null;
        },
        within,
      ),
  };
}
