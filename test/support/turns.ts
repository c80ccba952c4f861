import { brandId, type IncarnationId, type TenantId, uuidv7 } from "../../src/core/ids.ts";
import { claimLeases } from "../../src/core/lease.store.ts";
import type { HeldLease } from "../../src/core/lease.ts";
import { type Database, transition } from "../../src/core/postgres/transition.ts";
import { createTenant } from "../../src/core/tenant.store.ts";
import { admitActivation } from "../../src/sessions/activation.store.ts";
import { decide, type SessionSnapshot, type SessionStep } from "../../src/sessions/activation.ts";
import { createAgent } from "../../src/sessions/agent.store.ts";
import {
  commitCheckpoint,
  readProposedCandidate,
  recordVerified,
} from "../../src/sessions/checkpoint.store.ts";
import { readOutput } from "../../src/sessions/output.store.ts";
import { promiseCandidate } from "../../src/sessions/report.store.ts";
import {
  activationRecords,
  moveActivation,
  planAgain,
  readSessionSnapshot,
  rest,
  startRun,
} from "../../src/sessions/run.store.ts";
import { createSession } from "../../src/sessions/session.store.ts";
import type { AgentSpec } from "../../src/wire/agent.ts";
import type { AgentOutcome } from "../../src/wire/agent-protocol.ts";
import { outcomeOf } from "./attempts.ts";
import type { Scope } from "./database.ts";
import { type Kernel, openKernel, tenantA, tenantB } from "./kernel.ts";
import { trustingBlobs } from "./stored-life.ts";

const installation = "test";

/** What a world where all goes well would say of a run, told to the record alone: no process is started anywhere. */
export interface World {
  /** What the agent says; an outcome that names `content`, unless it is told otherwise. */
  readonly outcome?: Partial<AgentOutcome>;
  /** The candidate that it uploads; null: nothing changed. */
  readonly content?: { readonly bytes: bigint; readonly sha256: string } | null;
  readonly exitCode?: number;
  /** Said before the outcome, a line each. */
  readonly lines?: readonly string[];
  readonly runsMax?: number;
}

/** Sessions on a store of their own, moved step by step. */
export interface Turns {
  readonly kernel: Kernel;
  readonly db: Database;
  agent(name?: string, spec?: Partial<AgentSpec>, tenant?: TenantId): Promise<string>;
  session(agent?: string, tenant?: TenantId): Promise<string>;
  /** Gives the activation's client's id. */
  admit(
    session: string,
    admit?: {
      readonly id?: string;
      readonly stimulus?: Readonly<Record<string, unknown>>;
      readonly tenant?: TenantId;
    },
  ): Promise<string>;
  uidOf(session: string, activation: string): Promise<string>;
  /** Takes the session's lease, when it is due. */
  claim(session: string): Promise<HeldLease>;
  /** Somebody else takes it, as if it had not been renewed. */
  takeOver(lease: HeldLease): Promise<HeldLease>;
  look(lease: HeldLease): Promise<SessionSnapshot>;
  /** Do what is decided next, as a controller would. */
  step(lease: HeldLease, world?: World): Promise<SessionStep>;
  /** Step by step until that would be the next step. */
  driveTo(lease: HeldLease, next: SessionStep["do"], world?: World): Promise<SessionSnapshot>;
  /** Of every row of every table: equal when nothing has changed. */
  digest(): Promise<string>;
}

export const someBundle = { bytes: 3n, sha256: "a".repeat(64) };

export async function openTurns(
  scope: Scope & { readonly after: (hook: () => Promise<void>) => void },
): Promise<Turns> {
  const kernel = await openKernel(scope);
  const { db } = kernel;
  await createTenant(db, tenantA);
  await createTenant(db, tenantB);
  let agents = 0;

  async function report(lease: HeldLease, view: SessionSnapshot, world: World): Promise<void> {
    const sandbox = view.activation?.sandboxes.at(-1);
    if (sandbox === undefined || view.activation === null) throw new Error("nothing runs");
    const { content = someBundle, lines = [], outcome = {} } = world;
    const identity = { tenant: lease.tenant, sandbox: sandbox.id, deadline: sandbox.deadline };
    if (content !== null) await promiseCandidate(db, trustingBlobs, identity, content);
    const said = [
      JSON.stringify({ type: "start", protocol: 1 }),
      ...lines,
      JSON.stringify({
        type: "outcome",
        candidate: content?.sha256 ?? null,
        reply: { ok: true },
        ...outcome,
      }),
    ];
    await activationRecords(db, lease, () => view.activation?.uid ?? "").appendLog(sandbox.id, {
      afterSeq: 0n,
      position: null,
      chunks: [{ stream: "stdout", at: view.now, text: `${said.join("\n")}\n` }],
      truncated: false,
    });
  }

  const turns: Turns = {
    kernel,
    db,
    async agent(name, spec = {}, tenant = tenantA) {
      agents += 1;
      const called = name ?? `agent-${agents}`;
      await transition(db, { role: "gateway", tenant, name: "agent" }, (tx) =>
        createAgent(tx, {
          submission: {
            apiVersion: "holdfast/v1",
            kind: "Agent",
            metadata: { name: called },
            spec: { command: ["true"], ...spec },
          },
          defaultRuntime: "process",
        }),
      );
      return called;
    },
    async session(agent, tenant = tenantA) {
      const called = agent ?? (await turns.agent(undefined, {}, tenant));
      const row = await transition(db, { role: "gateway", tenant, name: "session" }, (tx) =>
        createSession(tx, { agent: called }),
      );
      return row.session_id;
    },
    async admit(session, { id, stimulus = { text: "hello" }, tenant = tenantA } = {}) {
      const given = id === undefined ? {} : { id };
      const { activation } = await transition(db, { role: "gateway", tenant, name: "admit" }, (tx) =>
        admitActivation(tx, { session, stimulus, queueMax: 1000, ...given }),
      );
      return activation.activation_id;
    },
    async uidOf(session, activation) {
      const [row] = await kernel.ask<{ uid: string }>(
        "select activation_uid as uid from holdfast.activations where session_id = $1 and activation_id = $2",
        [session, activation],
      );
      if (row === undefined) throw new Error("there is no such activation");
      return row.uid;
    },
    async claim(session) {
      const holder = brandId<IncarnationId>(uuidv7());
      const claimed = await claimLeases(db, {
        kind: "session",
        queue: "process",
        holder,
        limit: 1000,
        quota: 1000,
      });
      const own = claimed.find(({ resource }) => resource === session);
      if (own === undefined) throw new Error("the session is not due");
      for (const { resource, epoch } of claimed.filter((lease) => lease !== own)) {
        await kernel.ask(
          "update holdfast.leases set holder = null, wake_at = due_at where kind = 'session' and resource_id = $1 and epoch = $2",
          [resource, String(epoch)],
        );
      }
      return own;
    },
    async takeOver(lease) {
      await kernel.ask(
        "update holdfast.leases set wake_at = holdfast.ledger_now() where kind = 'session' and resource_id = $1",
        [lease.resource],
      );
      return turns.claim(lease.resource);
    },
    look: (lease) => readSessionSnapshot(db, lease.tenant, lease.resource),
    async step(lease, world = {}) {
      const view = await turns.look(lease);
      const step = decide(view);
      const uid = view.activation?.uid ?? "";
      const records = activationRecords(db, lease, () => uid);
      switch (step.do) {
        case "hold":
          await records.held(step.sandbox, `uid-of-${step.sandbox.name}`);
          break;
        case "release":
          await records.released(step.sandbox);
          await report(lease, view, world);
          break;
        case "watch":
          await records.stopped(
            step.sandbox,
            { ...outcomeOf("exited"), exitCode: world.exitCode ?? 0 },
            "it was waited for",
          );
          break;
        case "stop":
          await records.stopping(step.sandbox, step.reason);
          break;
        case "prove":
          await records.stopped(step.sandbox, outcomeOf("stopped"), "it was waited for");
          break;
        case "abandon":
          await records.stopped(step.sandbox, outcomeOf("never_started"), "never recorded");
          break;
        case "drain":
          await records.logEnded(step.sandbox.id, null);
          break;
        case "start":
          await startRun(db, lease, { ...step, installation, runsMax: world.runsMax ?? 100 });
          break;
        case "plan":
          await planAgain(db, lease, { ...step, installation });
          break;
        case "read":
          await readOutput(db, lease, uid, step);
          break;
        case "propose":
          await moveActivation(db, lease, step.activation, { to: "committing" });
          break;
        case "verify": {
          const candidate = await readProposedCandidate(db, lease, uid);
          if (candidate === undefined) throw new Error("nothing was promised");
          await recordVerified(db, lease, uid, candidate);
          break;
        }
        case "commit":
          await commitCheckpoint(db, lease, { uid, expectedHead: view.head, destinations: [] });
          break;
        case "wait":
          await moveActivation(db, lease, step.activation, { to: "waiting" });
          break;
        case "retry":
          await moveActivation(db, lease, step.activation, {
            to: "queued",
            failure: step.failure,
            at: view.now,
          });
          break;
        case "fail":
          await moveActivation(db, lease, step.activation, { to: "failed", failure: step.failure });
          break;
        case "cancel":
          await moveActivation(db, lease, step.activation, { to: "cancelled" });
          break;
        case "rest":
          await rest(db, lease, view, step);
          break;
        default:
          return step satisfies never;
      }
      return step;
    },
    async driveTo(lease, next, world) {
      for (let steps = 0; steps < 100; steps += 1) {
        const view = await turns.look(lease);
        if (decide(view).do === next) return view;
        await turns.step(lease, world);
      }
      throw new Error(`a hundred steps did not lead to ${next}`);
    },
    async digest() {
      const tables = await kernel.ask<{ name: string }>(
        `select c.oid::regclass::text as name from pg_class c
         where c.relnamespace = 'holdfast'::regnamespace and c.relkind = 'r' order by 1`,
      );
      const [row] = await kernel.ask<{ digest: string }>(
        `select md5(concat_ws('|', ${tables
          .map(({ name }) => `(select string_agg(t::text, ';' order by t::text) from ${name} t)`)
          .join(", ")})) as digest`,
      );
      if (row === undefined) throw new Error("no digest");
      return row.digest;
    },
  };
  return turns;
}
