import { setTimeout as delay } from "node:timers/promises";
import { type TenantId, uuidv7 } from "../core/ids.ts";
import { leaseTime } from "../core/lease.ts";
import { type Loop, startLoop } from "../core/loop.ts";
import type { Database } from "../core/postgres/transition.ts";
import type { Microseconds } from "../core/time.ts";
import {
  type Claimant,
  type DirectClaim,
  endedJobs,
  releaseClaim,
  takeDirectJob,
} from "./direct-claim.store.ts";
import type { Containers } from "./direct-container.ts";
import { runDirectJob } from "./direct-run.ts";
import { watchClaim } from "./direct-watch.ts";

export interface DirectClaimantOptions {
  readonly db: Database;
  readonly tenant: TenantId;
  /** In every claim: claims that were not renewed are taken up by claimants of the same host only. */
  readonly host: string;
  readonly containers: Containers;
  /** Jobs at once. */
  readonly jobsMax: number;
  readonly changes: (tenant: TenantId, job: string, onChange: () => void) => () => void;
  readonly onError: (error: unknown) => void;
  readonly claimUs?: Microseconds;
  /** Between two looks at an empty queue. */
  readonly pollMs?: number;
}

const pollEveryMs = 5_000;

/**
 * The older claimant: runs the jobs of one tenant that nobody enrolled, each as containers of this host (E13).
 * Controllers never see those jobs, since they have no lease, and this never sees the enrolled ones.
 */
export async function startDirectClaimant(options: DirectClaimantOptions): Promise<Loop> {
  await options.containers.check();
  await removeLeftOver(options);
  const workers = Array.from({ length: options.jobsMax }, () => startWorker(options));
  return {
    async stop() {
      await Promise.all(workers.map((worker) => worker.stop()));
    },
  };
}

function claimantOf(options: DirectClaimantOptions): Claimant {
  const { db, tenant, host, claimUs = leaseTime } = options;
  return { db, tenant, host, name: `${host}/${uuidv7()}`, claimUs };
}

/** Takes one job after the other, each to its end. One that can't be told the end of now is its next one again. */
function startWorker(options: DirectClaimantOptions): Loop {
  const claimant = claimantOf(options);
  return startLoop({
    onError: options.onError,
    async turn(stopping) {
      const claim = await takeDirectJob(claimant);
      if (claim === null) await delay(options.pollMs ?? pollEveryMs, undefined, { signal: stopping });
      else await attend(options, claimant, claim, stopping);
    },
  });
}

async function attend(
  options: DirectClaimantOptions,
  claimant: Claimant,
  claim: DirectClaim,
  stopping: AbortSignal,
): Promise<void> {
  const { containers, changes, onError, tenant } = options;
  const watch = watchClaim({
    claimant,
    claim,
    stopping,
    changes: (job, onChange) => changes(tenant, job, onChange),
    onError,
  });
  try {
    await runDirectJob(claimant, claim, { containers, watch });
  } catch (error) {
    if (stopping.aborted) await releaseClaim(claimant, claim.job);
    throw error;
  } finally {
    watch.stop();
  }
  await removeAll(options, await containers.list(claim.job)).catch(onError);
}

/** Containers of jobs that are over: whoever settled them died before removing them. */
async function removeLeftOver(options: DirectClaimantOptions): Promise<void> {
  const found = await options.containers.list();
  const ended = await endedJobs(claimantOf(options), [...new Set(found.map(({ job }) => job))]);
  await removeAll(
    options,
    found.filter(({ job }) => ended.has(job)),
  );
}

/** What can't be removed now is removed by the next claimant that starts here. */
async function removeAll(
  { containers, onError }: DirectClaimantOptions,
  found: readonly { readonly id: string }[],
): Promise<void> {
  for (const { id } of found) await containers.remove(id).catch(onError);
}
