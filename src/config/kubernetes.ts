/** A toleration as the API server takes it. */
export interface Toleration {
  readonly key: string;
  readonly operator: "Equal" | "Exists";
  readonly value?: string;
  readonly effect?: string;
}

export interface RunAs {
  readonly user: number;
  readonly group: number;
}

const labelName = String.raw`[A-Za-z0-9](?:[-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?`;
const labelKey = `(?:[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?/)?${labelName}`;
const effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const idMax = 2_147_483_647;

/** A name of an object that becomes part of a host name: a namespace. */
export function dnsLabel(text: string): string {
  if (/^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/.test(text)) return text;
  throw new Error("must be 1 to 63 lower-case letters, digits and inner hyphens");
}

/** A name of any other object. */
export function objectName(text: string): string {
  if (/^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$/.test(text)) return text;
  throw new Error("must be 1 to 253 lower-case letters, digits, inner hyphens and dots");
}

export const objectNames = (text: string): readonly string[] => parts(text).map(objectName);

export function imageName(text: string): string {
  if (/^[A-Za-z0-9][\w./:@-]{0,511}$/.test(text)) return text;
  throw new Error("must be an image such as registry.example/builds:1.2");
}

/** `KEY=VALUE`, several with commas between them. */
export function nodeSelector(text: string): Readonly<Record<string, string>> {
  const pair = new RegExp(`^(${labelKey})=(${labelName}|)$`);
  return Object.fromEntries(
    parts(text).map((part) => {
      const [, key, value] = pair.exec(part) ?? [];
      if (key === undefined || value === undefined) {
        throw new Error(`must be labels of nodes, KEY=VALUE with commas between them, found ${shown(part)}`);
      }
      return [key, value];
    }),
  );
}

/** Taints that are tolerated, as kubectl writes them: `KEY=VALUE:EFFECT`, `KEY:EFFECT` for any value, `KEY` for any effect. */
export function tolerations(text: string): readonly Toleration[] {
  const taint = new RegExp(`^(${labelKey})(?:=(${labelName}|))?(?::([A-Za-z]+))?$`);
  return parts(text).map((part) => {
    const [, key, value, effect] = taint.exec(part) ?? [];
    if (key === undefined || (effect !== undefined && !effects.includes(effect))) {
      throw new Error(
        `must be taints, KEY[=VALUE][:EFFECT] with commas between them and an effect of ${effects.join(", ")}, found ${shown(part)}`,
      );
    }
    return {
      key,
      ...(value === undefined ? { operator: "Exists" } : { operator: "Equal", value }),
      ...(effect === undefined ? {} : { effect }),
    };
  });
}

/** `USER:GROUP`. Never root: the restricted profile refuses it, and so do we. */
export function runAs(text: string): RunAs {
  const [, user, group] = (/^(\d{1,10}):(\d{1,10})$/.exec(text) ?? []).map(Number);
  if (user !== undefined && group !== undefined && user > 0 && user <= idMax && group <= idMax) {
    return { user, group };
  }
  throw new Error(`must be USER:GROUP in numbers, the user not 0, such as 65532:65532, found ${shown(text)}`);
}

function parts(text: string): readonly string[] {
  return text.split(",").map((part) => part.trim());
}

const shown = (text: string): string => JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text);
