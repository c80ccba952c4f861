import { type PrepareRequest, RuntimeRefusal } from "../core/runtime.port.ts";
import { checkName } from "./object-name.ts";

const entriesMax = 1_000;
/** Linux refuses a longer argument or variable, and more than this in all on common settings. */
const stringBytesMax = 128 * 1024;
const totalBytesMax = 1024 * 1024;

/** Refuse at once what could never be started, and names that would leave their folder. */
export function checkRequest(request: PrepareRequest, installation: string): void {
  checkName(request.name, "the sandbox's name");
  if (request.installation !== installation) throw invalid("it belongs to another installation");
  if (!/^[0-9a-f]{64}$/.test(request.specDigest)) throw invalid("the spec digest is no SHA-256 in hex");
  if (request.holdLimit <= 0n) throw invalid("the hold limit is not positive");

  const { command, env, secrets, grace } = request.spec;
  if (grace < 0n) throw invalid("the grace is negative");
  if (command[0] === undefined || command[0] === "") throw invalid("the command is empty");
  for (const reference of Object.values(secrets)) {
    checkName(reference.name, "the secret's name");
    checkName(reference.key, "the secret's key");
  }
  const variables = { ...env, ...request.privateEnv };
  for (const name of [...Object.keys(variables), ...Object.keys(secrets)]) {
    if (!/^[A-Za-z_][A-Za-z0-9_]{0,255}$/.test(name)) throw invalid("an environment name is not valid");
  }
  checkStrings([...command, ...Object.entries(variables).map(([name, value]) => `${name}=${value}`)]);
}

function checkStrings(strings: readonly string[]): void {
  if (strings.length > entriesMax) throw invalid(`more than ${entriesMax} arguments and variables`);
  let total = 0;
  for (const item of strings) {
    const bytes = Buffer.byteLength(item) + 1;
    total += bytes;
    if (item.includes("\0")) throw invalid("an argument or variable holds a zero byte");
    if (bytes > stringBytesMax)
      throw invalid(`an argument or variable is longer than ${stringBytesMax} bytes`);
  }
  if (total > totalBytesMax) throw invalid(`command and environment are longer than ${totalBytesMax} bytes`);
}

const invalid = (message: string): RuntimeRefusal => new RuntimeRefusal("invalid", message);
