import { isDeepStrictEqual } from "node:util";
import { gated, type PodObject, type PodSpecObject } from "./pod-object.ts";
import { badRequest, type Cause, forbiddenField, invalid, invalidValue, StatusError } from "./status.ts";

const nameShape = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const nameRule =
  "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const deadlineRule = "must be between 1 and 2147483647, inclusive";
const specMembers = new Set(
  "restartPolicy schedulingGates automountServiceAccountToken enableServiceLinks terminationGracePeriodSeconds securityContext containers initContainers volumes nodeSelector tolerations imagePullSecrets runtimeClassName priorityClassName activeDeadlineSeconds nodeName shareProcessNamespace serviceAccountName hostNetwork dnsPolicy".split(
    " ",
  ),
);

interface PodInput {
  readonly metadata?: Partial<PodObject["metadata"]>;
  readonly spec?: Partial<PodSpecObject>;
}

/** What the server makes of a posted body, or its refusal. */
export function admit(
  body: unknown,
  namespace: string,
  options: { readonly strict: boolean },
): Omit<PodObject, "metadata"> & { readonly metadata: Partial<PodObject["metadata"]> & { name: string } } {
  const { metadata = {}, spec = {} } = (body ?? {}) as PodInput;
  if (metadata.namespace !== undefined && metadata.namespace !== namespace) {
    throw badRequest("the namespace of the provided object does not match the namespace sent on the request");
  }
  if (metadata.resourceVersion !== undefined) {
    throw new StatusError(500, null, "resourceVersion should not be set on objects to be created");
  }
  const unknown = Object.keys(spec).find((member) => !specMembers.has(member));
  if (options.strict && unknown !== undefined) {
    throw badRequest(
      `Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.${unknown}"`,
    );
  }
  const name = metadata.name ?? "";
  const causes = createCauses(name, spec);
  if (causes.length > 0) throw invalid(name, causes);
  return { metadata: { ...metadata, name }, spec: withDefaults(spec), status: newStatus(spec) };
}

function createCauses(name: string, spec: Partial<PodSpecObject>): readonly Cause[] {
  const causes: Cause[] = [];
  if (name === "") {
    causes.push(required("metadata.name", "Required value: name or generateName is required"));
  } else if (!nameShape.test(name)) causes.push(invalidValue("metadata.name", name, nameRule));
  const { activeDeadlineSeconds: seconds, containers = [], restartPolicy = "Always", nodeName } = spec;
  if (seconds !== undefined && seconds < 1) {
    causes.push(invalidValue("spec.activeDeadlineSeconds", seconds, deadlineRule));
  }
  for (const [index, container] of containers.entries()) {
    if ((container.image ?? "") === "") {
      causes.push(required(`spec.containers[${index}].image`, "Required value"));
    }
  }
  if (!["Always", "OnFailure", "Never"].includes(restartPolicy)) {
    causes.push({
      reason: "FieldValueNotSupported",
      message: `Unsupported value: "${restartPolicy}": supported values: "Always", "OnFailure", "Never"`,
      field: "spec.restartPolicy",
    });
  }
  if (nodeName !== undefined && (spec.schedulingGates ?? []).length > 0) {
    causes.push(forbiddenField("spec.nodeName", "cannot be set until all schedulingGates have been cleared"));
  }
  return causes;
}

const required = (field: string, message: string): Cause => ({
  reason: "FieldValueRequired",
  message,
  field,
});

const nodeToleration = (key: string) => ({
  key: `node.kubernetes.io/${key}`,
  operator: "Exists",
  effect: "NoExecute",
  tolerationSeconds: 300,
});

function withDefaults(spec: Partial<PodSpecObject>): PodSpecObject {
  const { containers = [], tolerations = [], ...rest } = spec;
  return {
    restartPolicy: "Always",
    terminationGracePeriodSeconds: 30,
    dnsPolicy: "ClusterFirst",
    serviceAccountName: "default",
    serviceAccount: "default",
    securityContext: {},
    schedulerName: "default-scheduler",
    priority: 0,
    enableServiceLinks: true,
    preemptionPolicy: "PreemptLowerPriority",
    ...rest,
    containers: containers.map((container) => ({
      resources: {},
      terminationMessagePath: "/dev/termination-log",
      terminationMessagePolicy: "File",
      imagePullPolicy: "IfNotPresent",
      ...container,
    })),
    tolerations: [...tolerations, nodeToleration("not-ready"), nodeToleration("unreachable")],
  };
}

function newStatus(spec: Partial<PodSpecObject>): PodObject["status"] {
  const resources = (spec.containers ?? []).some((item) => Object.keys(item.resources ?? {}).length > 0);
  const held = (spec.schedulingGates ?? []).length > 0;
  return {
    phase: "Pending",
    ...(held ? { conditions: [gated()] } : { conditions: [] }),
    qosClass: resources ? "Burstable" : "BestEffort",
  };
}

const specRule =
  "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/** The refusal of a change, if it is one. */
export function checkChange(before: PodObject, after: PodObject): void {
  const { name } = before.metadata;
  if (after.metadata.uid !== before.metadata.uid) {
    throw invalid(name, [invalidValue("metadata.uid", after.metadata.uid, "field is immutable")]);
  }
  if (after.metadata.resourceVersion !== before.metadata.resourceVersion) {
    throw new StatusError(
      409,
      "Conflict",
      `Operation cannot be fulfilled on pods "${name}": the object has been modified; please apply your changes to the latest version and try again`,
      { name, kind: "pods" },
    );
  }
  const causes = [...finalizerCauses(before, after), ...specCauses(before.spec, after.spec)];
  if (causes.length > 0) throw invalid(name, causes);
}

function finalizerCauses(before: PodObject, after: PodObject): readonly Cause[] {
  const stood = before.metadata.finalizers ?? [];
  const wanted = after.metadata.finalizers ?? [];
  const added = wanted.filter((item) => !stood.includes(item));
  const words = "name is neither a standard finalizer name nor is it fully qualified";
  const unqualified = wanted.findIndex((item) => !item.includes("/"));
  if (unqualified !== -1) {
    return [invalidValue(`metadata.finalizers[${unqualified}]`, wanted[unqualified], words)];
  }
  if (before.metadata.deletionTimestamp === undefined || added.length === 0) return [];
  const listed = added.map((item) => JSON.stringify(item)).join(", ");
  const rule = "no new finalizers can be added if the object is being deleted";
  return [forbiddenField("metadata.finalizers", `${rule}, found new finalizers []string{${listed}}`)];
}

function specCauses(before: PodSpecObject, after: PodSpecObject): readonly Cause[] {
  const gates = before.schedulingGates ?? [];
  const added = (after.schedulingGates ?? []).findIndex(
    ({ name }) => !gates.some((gate) => gate.name === name),
  );
  if (added !== -1) {
    const words = `only deletion is allowed, but found new scheduling gate '${after.schedulingGates?.[added]?.name}'`;
    return [forbiddenField(`spec.schedulingGates[${added}].name`, words)];
  }
  return [...deadlineCauses(before, after), ...otherCauses(before, after)];
}

function deadlineCauses(before: PodSpecObject, after: PodSpecObject): readonly Cause[] {
  const [stood, wanted] = [before.activeDeadlineSeconds, after.activeDeadlineSeconds];
  const field = "spec.activeDeadlineSeconds";
  if (wanted !== undefined && wanted < 1) return [invalidValue(field, wanted, deadlineRule)];
  if (stood === undefined) return [];
  if (wanted === undefined) {
    return [invalidValue(field, null, "must not update from a positive integer to nil value")];
  }
  return wanted > stood ? [invalidValue(field, wanted, "must be less than or equal to previous value")] : [];
}

function otherCauses(before: PodSpecObject, after: PodSpecObject): readonly Cause[] {
  const held = (before.schedulingGates ?? []).length > 0;
  const [stood, wanted] = [before.nodeSelector ?? {}, after.nodeSelector ?? {}];
  const kept = Object.entries(stood).every(([key, value]) => wanted[key] === value);
  if (held && !kept) {
    const rule = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
    return [invalidValue("spec.nodeSelector", wanted, rule)];
  }
  const same = isDeepStrictEqual(fixedPart(before, held), fixedPart(after, held));
  return same ? [] : [forbiddenField("spec", specRule)];
}

function fixedPart(spec: PodSpecObject, held: boolean): object {
  const {
    schedulingGates: _gates,
    activeDeadlineSeconds: _seconds,
    tolerations: _tolerations,
    ...rest
  } = spec;
  const containers = rest.containers.map(({ image: _image, ...container }) => container);
  return { ...rest, containers, ...(held ? { nodeSelector: undefined } : {}) };
}
