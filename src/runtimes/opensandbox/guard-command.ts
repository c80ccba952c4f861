import type { PrepareRequest } from "../../core/runtime.port.ts";
import { guardScript } from "./guard-script.ts";

/** What a guard is asked: an operation, the sandbox's id, and words that need no quoting to be told apart. */
export function guardCommand(
  operation: string,
  uid: string,
  words: readonly (string | number | bigint)[],
): string {
  // Whatever shell the daemon prefers, the guard runs in the one that POSIX names.
  const argv = ["/bin/sh", "-c", guardScript, "holdfast-guard", operation, uid, ...words.map(String)];
  return `exec ${argv.map(quote).join(" ")}`;
}

/**
 * The program that becomes the command: environment, working directory, `exec`. It is written into the sandbox when
 * the object is claimed, holds the token and the values of secrets, and removes itself as soon as it runs.
 */
export function launchScript(
  { spec, privateEnv }: Pick<PrepareRequest, "spec" | "privateEnv">,
  uid: string,
  secrets: { readonly values: Readonly<Record<string, string>> } | { readonly failure: string },
): string {
  const variables = { ...spec.env, ...privateEnv, ...("values" in secrets ? secrets.values : {}) };
  const failure = "failure" in secrets ? `fail ${quote(secrets.failure)}\n` : "";
  return `holdfast_d=$1
fail() { printf '%s' "$1" > "$holdfast_d/failed"; exit 127; }
rm -f "$0"
umask 022
mkdir -p "$holdfast_d/work" "$holdfast_d/tmp" && cd "$holdfast_d/work" || fail 'its working directory can not be made'
${failure}export HOME="$holdfast_d/work" TMPDIR="$holdfast_d/tmp"
${Object.entries(variables)
  .map(([name, value]) => `export ${name}=${quote(value)}\n`)
  .join("")}export HOLDFAST_SANDBOX=${quote(uid)}
set -- ${spec.command.map(quote).join(" ")}
case $1 in
  */*)
    [ -e "$1" ] || fail "no such file: $1"
    [ -x "$1" ] || fail "it can not be executed: $1" ;;
  *) command -v "$1" > /dev/null 2>&1 || fail "no such file on its PATH: $1" ;;
esac
exec "$@"
`;
}

const quote = (text: string): string => `'${text.replaceAll("'", () => "'\\''")}'`;
