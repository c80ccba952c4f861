import { readFile, writeFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { parseDuration, toMilliseconds } from "../core/time.ts";
import { packTree } from "./pack-tree.ts";
import { type PhaseCallback, PhaseFailure, phaseCallback, phaseExit } from "./phase-callback.ts";
import { downloadFile, type FileContent, uploadFile } from "./phase-transfer.ts";
import { unpackTree } from "./unpack-tree.ts";

export const phaseUsage = `holdfast-phase: the sandbox's side of Holdfast's callback.

  holdfast-phase pin NAME=COMMIT …               report the commits that sources resolved to
  holdfast-phase progress MESSAGE [--percent N]  say what the phase is doing
  holdfast-phase upload NAME FILE [--media-type TYPE]
  holdfast-phase download PHASE NAME FILE
  holdfast-phase artifact OBJECT --manifest FILE.json
  holdfast-phase result KEY=VALUE …
  holdfast-phase pack DIR FILE.tar.gz [--manifest FILE.json]
  holdfast-phase unpack FILE.tar.gz DIR

Options
  --retry-for DURATION  bear temporary failures for so long (default 10m)
  --help

Examples
  holdfast-phase pin engine=$(git -C engine rev-parse HEAD)
  holdfast-phase pack site site.tar.gz --manifest site.json
  holdfast-phase upload site.tar.gz site.tar.gz --media-type application/gzip
  holdfast-phase artifact site.tar.gz --manifest site.json

Exit codes
  0 done   1 failed here   2 usage   3 the server refused the request
  4 stop: this sandbox may not report any more   5 gave up   6 the bytes are not the promised ones
`;

export interface PhaseCommandContext {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly stdout: (text: string) => void;
  readonly stderr: (text: string) => void;
  readonly wait?: (ms: number) => Promise<void>;
}

/** Runs one command and returns the process's exit code. Never throws. */
export async function phaseCommand(argv: readonly string[], context: PhaseCommandContext): Promise<number> {
  try {
    await run(argv, context);
    return phaseExit.done;
  } catch (error) {
    context.stderr(`holdfast-phase: ${error instanceof Error ? error.message : String(error)}\n`);
    return error instanceof PhaseFailure ? error.exit : phaseExit.failed;
  }
}

async function run(argv: readonly string[], context: PhaseCommandContext): Promise<void> {
  const { values, positionals } = parse(argv);
  const [command, ...words] = positionals;
  if (values.help === true) {
    context.stdout(phaseUsage);
    return;
  }
  const callback = () => callbackOf(context, values["retry-for"]);
  switch (command) {
    case "pin":
      await callback().post("/pins", { pins: assignments(words) });
      return;
    case "progress": {
      const [message = ""] = expect(words, 1);
      const percent = values.percent === undefined ? {} : { percent: percentOf(values.percent) };
      await callback().post("/progress", { message, ...percent });
      return;
    }
    case "upload": {
      const [name = "", file = ""] = expect(words, 2);
      const type = values["media-type"] ?? "application/octet-stream";
      context.stdout(told("uploaded", name, await uploadFile(callback(), name, file, type)));
      return;
    }
    case "download": {
      const [phase = "", name = "", file = ""] = expect(words, 3);
      context.stdout(
        told("downloaded", `${phase}/${name}`, await downloadFile(callback(), phase, name, file)),
      );
      return;
    }
    case "artifact": {
      const [object = ""] = expect(words, 1);
      await callback().post("/artifact", { object, files: await manifestOf(values.manifest) });
      return;
    }
    case "result":
      await callback().post("/result", assignments(words));
      return;
    case "pack": {
      const [folder = "", file = ""] = expect(words, 2);
      const files = await packTree(folder, file);
      if (values.manifest !== undefined) {
        await writeFile(values.manifest, `${JSON.stringify({ files }, null, 2)}\n`);
      }
      return;
    }
    case "unpack": {
      const [file = "", folder = ""] = expect(words, 2);
      await unpackTree(file, folder);
      return;
    }
    case undefined:
      throw usage("a command is missing; see --help");
    default:
      throw usage(`there is no command ${command}; see --help`);
  }
}

function parse(argv: readonly string[]) {
  try {
    return parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: {
        help: { type: "boolean", short: "h" },
        percent: { type: "string" },
        manifest: { type: "string" },
        "media-type": { type: "string" },
        "retry-for": { type: "string" },
      },
    });
  } catch (error) {
    throw usage(error instanceof Error ? error.message : String(error));
  }
}

function callbackOf({ env, wait = sleep }: PhaseCommandContext, retryFor = "10m"): PhaseCallback {
  const url = env["HOLDFAST_CALLBACK_URL"];
  const token = env["HOLDFAST_TOKEN"];
  if (url === undefined || token === undefined) {
    throw usage("HOLDFAST_CALLBACK_URL and HOLDFAST_TOKEN are not set: this is not a sandbox");
  }
  const duration = parseDuration(retryFor);
  if (duration === undefined) throw usage(`--retry-for: ${retryFor} is no duration like 90s or 10m`);
  const monotonicMs = () => performance.now();
  return phaseCallback({ url, token, retryForMs: toMilliseconds(duration), wait, monotonicMs });
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function usage(message: string): PhaseFailure {
  return new PhaseFailure(phaseExit.usage, message);
}

function expect(words: readonly string[], count: number): readonly string[] {
  if (words.length !== count) throw usage(`${count} arguments are expected, not ${words.length}; see --help`);
  return words;
}

function assignments(words: readonly string[]): Record<string, string> {
  if (words.length === 0) throw usage("NAME=VALUE is missing; see --help");
  const pairs = words.map((word) => {
    const equals = word.indexOf("=");
    if (equals < 1) throw usage(`${word} is not NAME=VALUE`);
    return [word.slice(0, equals), word.slice(equals + 1)] as const;
  });
  return Object.fromEntries(pairs);
}

function percentOf(text: string): number {
  if (!/^(?:100|\d{1,2})$/.test(text)) throw usage(`--percent: ${text} is no whole number from 0 to 100`);
  return Number(text);
}

async function manifestOf(file: string | undefined): Promise<unknown> {
  if (file === undefined) throw usage("--manifest FILE.json is missing");
  const manifest: unknown = JSON.parse(await readFile(file, "utf8"));
  if (typeof manifest === "object" && manifest !== null && "files" in manifest) return manifest.files;
  throw new Error(`${file} is no manifest: {"files": [{"name": …, "bytes": …, "sha256": …}]}`);
}

function told(done: string, name: string, { bytes, sha256 }: FileContent): string {
  return `${done} ${name} ${bytes} bytes sha256:${sha256}\n`;
}
