import { type PrepareRequest, RuntimeRefusal } from "../../core/runtime.port.ts";
import { type Microseconds, toMilliseconds } from "../../core/time.ts";
import { metadataOf } from "./marks.ts";

/** What a platform team decides about every sandbox. */
export interface SandboxSettings {
  /** For sandboxes that name none. It needs a POSIX shell with the usual small tools. */
  readonly image: string | null;
  /** Names that sandboxes may reach; all others are denied. Null: as the service has it. */
  readonly egress: readonly string[] | null;
  /** How long a sandbox is kept after its command must have ended, for whoever fetches its output. */
  readonly lingerMs: number;
}

export const defaultSettings: SandboxSettings = { image: null, egress: null, lingerMs: 3_600_000 };

/** The service takes no shorter life. */
const lifeSecondsMin = 60;
const labelValue = /^[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$/;

/** Held: it idles, and ends idling when it is asked to. The command comes through the guard. */
const idle = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done";

export function createBody(request: PrepareRequest, settings: SandboxSettings): object {
  const { spec } = request;
  return {
    image: { uri: imageOf(request, settings) },
    entrypoint: ["/bin/sh", "-c", idle],
    resourceLimits: {
      cpu: `${spec.limits.cpuMillicores}m`,
      memory: `${Math.ceil(spec.limits.memoryBytes / 1024 / 1024)}Mi`,
    },
    // Ends it when everybody has forgotten it: a dead man's switch, not the deadline.
    timeout: Math.max(lifeSecondsMin, Math.ceil(lifeMs(request.holdLimit, spec.grace, settings) / 1000)),
    metadata: metadataOf(request),
    ...(settings.egress === null
      ? {}
      : {
          networkPolicy: {
            defaultAction: "deny",
            egress: settings.egress.map((target) => ({ action: "allow", target })),
          },
        }),
  };
}

/** How long a sandbox has to be there at least, when its command may still take so long. */
export const lifeMs = (limit: Microseconds, grace: Microseconds, settings: SandboxSettings): number =>
  toMilliseconds(limit) + toMilliseconds(grace) + settings.lingerMs;

export function checkLabels(request: PrepareRequest): void {
  for (const value of Object.values(metadataOf(request))) {
    if (!labelValue.test(value)) {
      throw new RuntimeRefusal("invalid", `it is no value of a label: ${JSON.stringify(value.slice(0, 70))}`);
    }
  }
}

function imageOf({ spec }: PrepareRequest, settings: SandboxSettings): string {
  const image = spec.image ?? settings.image;
  if (image !== null && image !== "") return image;
  throw new RuntimeRefusal("invalid", "the sandbox names no image and there is no default");
}
