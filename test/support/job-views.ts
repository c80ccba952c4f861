import type {
  ArtifactView,
  AttemptPlanView,
  AttemptView,
  JobView,
  LogLine,
  SandboxView,
} from "../../src/wire/job.ts";

/** Views as the gateway gives them, for tests of what reads them. */
export const jobId = "01976b2c-0000-7000-8000-000000000001";
export const digest = "a".repeat(64);
const at = (second: number): string => `2026-01-02T03:04:${String(second).padStart(2, "0")}.000000Z`;

export function jobView(more: Partial<JobView> = {}): JobView {
  return {
    id: jobId,
    name: "site",
    state: "running",
    priority: 2,
    labels: { team: "web" },
    resource_version: "7",
    spec_digest: digest,
    attempts: 1,
    created_at: at(0),
    queued_at: at(0),
    finished_at: null,
    cancel_requested_at: null,
    cancel_reason: null,
    failure: null,
    ...more,
  };
}

export const finishedAt = at(40);

export function attemptView(more: Partial<AttemptView> = {}): AttemptView {
  return {
    id: "01976b2c-0000-7000-8000-0000000000a1",
    job_id: jobId,
    attempt: 1,
    state: "active",
    outcome: null,
    failure: null,
    pool: "default",
    plan_digest: digest,
    started_at: at(1),
    deadline: "2026-01-02T03:34:01.000000Z",
    finished_at: null,
    cleaned_at: null,
    resource_version: "3",
    phases: [
      {
        name: "fetch",
        kind: "source",
        state: "succeeded",
        started_at: at(2),
        finished_at: at(5),
        progress: null,
        failure: null,
        result: null,
      },
      {
        name: "build",
        kind: "compile",
        state: "running",
        started_at: at(6),
        finished_at: null,
        progress: { message: "half way", percent: 50 },
        failure: null,
        result: null,
      },
    ],
    pins: { engine: "c".repeat(40) },
    sandboxes: [sandboxView()],
    log: null,
    ...more,
  };
}

export function planView(attempt = 1): AttemptPlanView {
  return {
    job_id: jobId,
    attempt,
    plan_digest: digest,
    plan: {
      version: "holdfast.plan.v1",
      runtime: "process",
      pool: "default",
      deadline_us: "1800000000",
      attempts: 1,
      sources: { engine: { repository: "https://example.com/engine.git", ref: "main" } },
      phases: [
        {
          name: "build",
          kind: "compile",
          command: ["make", "all"],
          env: {},
          secrets: {},
          image: null,
          grace_us: "10000000",
          limits: { cpu_millicores: 1000, memory_bytes: 1_073_741_824, disk_bytes: 4_294_967_296 },
        },
      ],
    },
  };
}

export function sandboxView(more: Partial<SandboxView> = {}): SandboxView {
  return {
    id: "01976b2c-0000-7000-8000-0000000000b1",
    phase: "fetch",
    name: "hf-dev-fetch-1",
    runtime: "process",
    uid: "boot-1-2",
    state: "stopped",
    planned_at: at(1),
    held_at: at(2),
    released_at: at(2),
    stopping_at: null,
    stop_reason: null,
    stopped_at: at(5),
    stop_proof: "record",
    removed_at: null,
    outcome: "exited",
    exit_code: 0,
    message: null,
    overridden_by: null,
    stop_unproven: null,
    log_bytes: 120,
    log_truncated: false,
    ...more,
  };
}

export function artifactView(more: Partial<ArtifactView> = {}): ArtifactView {
  return {
    job_id: jobId,
    name: "site.tar.gz",
    bytes: 5,
    sha256: digest,
    media_type: "application/gzip",
    published_at: at(39),
    retain_until: "2026-02-01T03:04:39.000000Z",
    removed_at: null,
    files: [],
    ...more,
  };
}

export function logLine(number: number, more: Partial<LogLine> = {}): LogLine {
  return {
    cursor: `c${number}`,
    attempt: 1,
    phase: "build",
    stream: "stdout",
    at: at(number),
    text: `line ${number}`,
    ...more,
  };
}
