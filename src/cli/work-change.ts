import { ApiError, type Client, type WorkView } from "../client/client.ts";
import type { Microseconds } from "../core/time.ts";
import { writeDuration } from "../wire/duration.ts";
import { HoldfastError } from "../wire/holdfast-error.ts";
import type { WorkItem, WorkProof } from "../wire/work.ts";
import { type CommandContext, clientOf, printValue, type ServerFlags } from "./context.ts";
import { Exit, failureOf, failureText, UsageError } from "./failures.ts";
import { workIdOf } from "./job-id.ts";
import { spelled } from "./program-name.ts";
import { strictJsonFile } from "./strict-json.ts";
import { instantText } from "./time-text.ts";
import { visible } from "./visible.ts";
import { explained, type WorkVerb } from "./work-refusal.ts";
import { suspendedSentence } from "./work-words.ts";

interface SubmitFlags extends ServerFlags {
  readonly version: string;
  readonly input: string;
  readonly id?: string;
  readonly key?: string;
  readonly deadline?: string;
  readonly delay?: Microseconds;
  readonly queue?: string;
  readonly priority?: number;
  readonly providerKey?: string;
  readonly circuitKey?: string;
}

export async function submit(context: CommandContext, name: string, flags: SubmitFlags): Promise<void> {
  const { version, id, key, delay, queue, priority, providerKey, circuitKey } = flags;
  const optional: Omit<WorkItem, "input"> = {
    ...(id === undefined ? {} : { id }),
    ...(key === undefined ? {} : { key }),
    ...(flags.deadline === undefined ? {} : { deadline: deadlineOf(flags.deadline) }),
    ...(delay === undefined ? {} : { delay: writeDuration(delay) }),
    ...(queue === undefined ? {} : { queue }),
    ...(priority === undefined ? {} : { priority }),
    ...(providerKey === undefined ? {} : { provider_key: providerKey }),
    ...(circuitKey === undefined ? {} : { circuit_key: circuitKey }),
  };
  const item = { name, version, input: await strictJsonFile(flags.input), ...optional };
  const client = clientOf(context, flags);
  const receipt = await client.submitWork(item).catch(async (error: unknown) => {
    const doubtful = delay !== undefined && error instanceof ApiError && error.code === "invalid_request";
    throw doubtful && (await isPlanned(client, name, version)) ? takesNoDelay(name, version) : error;
  });
  if (flags.output === "json" || flags.output === "yaml") return printValue(context, flags.output, receipt);
  if (flags.output === "name") return context.terminal.out(`work/${receipt.id}\n`);
  if (receipt.duplicate) {
    await context.terminal.err(`it was accepted before, at ${instantText(receipt.accepted_at)}\n`);
  }
  await context.terminal.out(`${receipt.id}\n`);
}

/** People leave the fraction out; the API wants all six digits of it. */
function deadlineOf(text: string): string {
  const at = Date.parse(text);
  if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/.test(text) || Number.isNaN(at))
    throw new UsageError(`--deadline ${visible(text)} is not an instant such as 2027-01-31T12:00:00Z`);
  const [, fraction = ""] = /:\d\d\.(\d{1,6})(?!\d)/.exec(text) ?? [];
  return `${new Date(at).toISOString().slice(0, 19)}.${fraction.padEnd(6, "0")}Z`;
}

export async function payload(context: CommandContext, typed: string, flags: ServerFlags): Promise<void> {
  const client = clientOf(context, flags);
  const format = flags.output === "yaml" ? "yaml" : "json";
  await printValue(context, format, await client.getWorkPayload(await workIdOf(client, typed)));
}

export function cancel(
  context: CommandContext,
  typed: readonly string[],
  flags: ServerFlags & { readonly reason?: string },
): Promise<void> {
  return each(context, "cancel", typed, flags, (client, id) =>
    client.cancelWork(id, { reason: flags.reason }),
  );
}

export function change(
  context: CommandContext,
  verb: "release" | "requeue" | "suspend",
  typed: readonly string[],
  flags: ServerFlags,
): Promise<void> {
  const call = (client: Client, id: string): Promise<WorkView> => {
    switch (verb) {
      case "release":
        return client.releaseWork(id);
      case "requeue":
        return client.requeueWork(id);
      case "suspend":
        return client.suspendWork(id);
    }
  };
  return each(context, verb, typed, flags, call);
}

interface ResolveFlags extends ServerFlags {
  readonly verdict: WorkProof["verdict"];
  readonly note: string;
  readonly attempt?: number;
  readonly result?: string;
}

export async function resolve(context: CommandContext, typed: string, flags: ResolveFlags): Promise<void> {
  const { verdict, note, attempt } = flags;
  if (verdict === "not_applied" && flags.result !== undefined)
    throw new UsageError("--result is for what was applied");
  const result = flags.result === undefined ? {} : { result: await strictJsonFile(flags.result) };
  const proof = { verdict, note, ...(attempt === undefined ? {} : { attempt }), ...result };
  await each(context, "resolve", [typed], flags, (client, id) => client.resolveWork(id, proof));
}

/** One that is refused does not keep the others from it. */
async function each(
  context: CommandContext,
  verb: WorkVerb,
  typed: readonly string[],
  flags: ServerFlags,
  call: (client: Client, id: string) => Promise<WorkView>,
): Promise<void> {
  const client = clientOf(context, flags);
  const { terminal } = context;
  let failed: unknown;
  for (const text of typed) {
    try {
      const id = await workIdOf(client, text);
      const changed = await call(client, id).catch(async (error: unknown) => {
        throw await explained(client, verb, id, error, context.now());
      });
      await printChanged(context, flags, changed);
    } catch (error) {
      if (typed.length === 1) throw error;
      if (flags.output === "json") await terminal.err(`${JSON.stringify({ error: failureOf(error) })}\n`);
      else await terminal.err(failureText(error, terminal.errorColors));
      failed ??= error;
    }
  }
  if (failed !== undefined) throw new Exit(failureOf(failed).exit_code);
}

async function printChanged(context: CommandContext, { output }: ServerFlags, work: WorkView): Promise<void> {
  if (output === "json") return context.terminal.out(`${JSON.stringify(work)}\n`);
  if (output === "yaml") return printValue(context, output, work);
  if (output === "name") return context.terminal.out(`work/${work.id}\n`);
  if (work.suspended !== null && work.state === "suspended") {
    return context.terminal.out(`${work.id} is suspended: ${suspendedSentence(work.suspended.reason)}\n`);
  }
  const due = work.next_due_at === null ? "" : `, due at ${instantText(work.next_due_at)}`;
  await context.terminal.out(`${work.id} is ${work.state}${due}\n`);
}

export async function retire(
  context: CommandContext,
  name: string,
  version: string,
  flags: ServerFlags,
): Promise<void> {
  const retired = await operated(() => clientOf(context, flags).retireWorkVersion(name, version));
  if (flags.output === "json" || flags.output === "yaml") return printValue(context, flags.output, retired);
  await context.terminal.out(
    `${visible(name)} ${visible(version)} takes nothing new since ${instantText(retired.retired_at)}\n`,
  );
}

async function isPlanned(client: Client, name: string, version: string): Promise<boolean> {
  const versions = await client.listWorkVersions({ name }).catch(() => []);
  return versions.some((one) => one.name === name && one.version === version && one.policy === "planned");
}

function takesNoDelay(name: string, version: string): UsageError {
  return new UsageError(
    `${visible(name)} ${visible(version)} has a plan of attempts, which begins when it is accepted: it takes no --delay`,
    "Leave --delay out, or submit it later. `holdfast work versions` shows the policy of each.",
  );
}

export async function disableTenant(
  context: CommandContext,
  name: string,
  flags: ServerFlags & { readonly confirm: string },
): Promise<void> {
  if (flags.confirm !== name)
    throw new UsageError(`--confirm is not ${visible(name)}`, "Nothing was done: give its name once more.");
  const disabled = await operated(() =>
    clientOf(context, flags).disableTenant(name, { confirm: flags.confirm }),
  );
  if (flags.output === "json" || flags.output === "yaml") return printValue(context, flags.output, disabled);
  await context.terminal.out(`${visible(name)} is disabled since ${instantText(disabled.disabled_at)}\n`);
  await context.terminal.err(spelled(afterDisabling));
}

const afterDisabling = `Its tokens let nobody in, nothing new of it is admitted, and its waiting work is suspended for good. What runs already
goes on to its end. This is never taken back: whoever goes on needs another tenant, which
\`holdfast token create --tenant NAME --principal NAME\` makes.
`;

/** A server without the operator's routes knows nothing at their path. */
async function operated<T>(call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    const absent = error instanceof ApiError && error.detail === "there is nothing at this path";
    if (!absent) throw error;
    throw new HoldfastError("not_found", "this server has no operator's routes (HOLDFAST_OPERATOR_API)");
  }
}
