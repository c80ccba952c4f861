import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { Command } from "commander";
import pc from "picocolors";
import { runCommand } from "../../test/support/run-command.ts";
import { parseConfig } from "../config.ts";
import { errorCatalogue } from "../wire/errors.ts";
import { completerName, completionScript, completions } from "./complete.ts";
import type { CommandContext } from "./context.ts";
import { contextsPath, writeContexts } from "./contexts.ts";
import { loaded } from "./lazy-command.ts";
import { createProgram } from "./program.ts";
import { visible } from "./visible.ts";

const colors = pc.createColors(false);
const nothing = () => Promise.resolve();
const context: CommandContext = {
  config: parseConfig({}),
  terminal: {
    out: nothing,
    err: nothing,
    live: false,
    columns: 80,
    rows: 24,
    colors,
    errorColors: colors,
    foreign: visible,
  },
  version: "0.0.0",
  directory: "/",
  now: () => 0,
};
const program = createProgram(context, "0");

/** Each command that does something, with the words that lead to it. */
async function leaves(command: Command, words: readonly string[] = []): Promise<[string, Command][]> {
  const whole = await loaded(command);
  if (whole.commands.length === 0) return [[words.join(" "), whole]];
  const below = whole.commands.filter((one) => !["help", completerName].includes(one.name()));
  return (await Promise.all(below.map((one) => leaves(one, [...words, one.name()])))).flat();
}

test("every command has help with an example", async () => {
  const commands = await leaves(program);
  assert.ok(commands.length > 40, `${commands.length} commands`);
  const without = commands.filter(([, command]) => {
    let help = "";
    command.configureOutput({ writeOut: (text) => (help += text) }).outputHelp();
    return !/Examples?:\n {2}\$ /.test(help);
  });
  assert.deepEqual(
    without.map(([words]) => words),
    [],
  );
});

describe("completion", () => {
  test("offers commands, also of groups that are loaded late, flags and their values", async () => {
    assert.deepEqual(await completions(program, ["desc"]), ["describe"]);
    assert.deepEqual(await completions(program, ["get", "jo"]), ["jobs"]);
    assert.deepEqual(await completions(program, ["session", "se"]), ["send", "set"]);
    assert.deepEqual(await completions(program, ["get", "jobs", "--st"]), ["--state"]);
    assert.deepEqual(await completions(program, ["get", "jobs", "--state", "f"]), ["failed"]);
    assert.deepEqual(await completions(program, ["get", "jobs", "-o", ""]), ["text", "json", "yaml", "name"]);
    assert.deepEqual(await completions(program, ["get", "jobs", "--output=j"]), ["--output=json"]);
    assert.deepEqual(await completions(program, ["completion", ""]), ["bash", "zsh", "fish"]);
    assert.deepEqual(await completions(program, ["explain", "idem"]), ["idempotency_conflict"]);
    assert.deepEqual(await completions(program, ["drain", "jobs", "a"]), ["activations", "all"]);
    assert.deepEqual(await completions(program, ["resume", "s"]), ["sessions"]);
    assert.deepEqual(await completions(program, ["run", "ex"]), [], "files are the shell's");
    assert.ok(!(await completions(program, [""])).includes(completerName));
  });

  test("offers the contexts that there are, and none of a file that can't be read", async (t) => {
    const configHome = await mkdtemp(join(tmpdir(), "hf-completion-"));
    t.after(() => rm(configHome, { recursive: true }));
    const own = createProgram({ ...context, config: { ...context.config, configHome } }, "0");
    assert.deepEqual(await completions(own, ["context", "use", ""]), []);
    const servers = new Map(
      ["prod", "preview", "local"].map((name) => [name, { url: "http://127.0.0.1:1", tokenFile: null }]),
    );
    await writeContexts(contextsPath(configHome), { current: null, servers });
    assert.deepEqual(await completions(own, ["context", "use", "p"]), ["prod", "preview"]);
    assert.deepEqual(await completions(own, ["context", "delete", "l"]), ["local"]);
    assert.deepEqual(await completions(own, ["get", "jobs", "--context", "pr"]), ["prod", "preview"]);
    assert.deepEqual(await completions(own, ["get", "jobs", "--context=l"]), ["--context=local"]);
  });

  test("works in bash", async () => {
    const { stdout } = await runCommand([completerName, "--", "get", "del"]);
    assert.equal(stdout, "deliveries\n");
    const script = `
      holdfast() { printf 'deliveries\\n'; }
      ${completionScript.bash}
      COMP_WORDS=(holdfast get del) COMP_CWORD=2
      _holdfast
      printf '%s' "\${COMPREPLY[*]}"`;
    const shell = spawnSync("bash", ["--norc", "-c", script], { encoding: "utf8" });
    assert.equal(shell.stdout, "deliveries", shell.stderr);
  });

  test("prints a script for each shell, and names them for another one", async () => {
    for (const shell of ["bash", "zsh", "fish"]) {
      const { code, stdout } = await runCommand(["completion", shell]);
      assert.equal(code, 0);
      assert.match(stdout, /holdfast complete -- /);
    }
    const other = await runCommand(["completion", "csh"]);
    assert.equal(other.code, 2);
    assert.match(other.stderr, /bash, zsh, fish/);
  });
});

describe("explain", () => {
  test("says of every code what it means and what to do, without a server", async () => {
    const all = await runCommand(["explain", "-o", "json"]);
    const { items } = JSON.parse(all.stdout) as { items: { code: string; next_here: string }[] };
    assert.deepEqual(
      items.map(({ code }) => code),
      Object.keys(errorCatalogue),
    );
    assert.ok(
      items.every(
        ({ next_here }) =>
          next_here !== "" && !/`errors`|`detail`|`Allow`|`cursor`|Retry-After/.test(next_here),
      ),
    );
    const one = await runCommand(["explain", "idempotency_conflict"]);
    assert.match(
      one.stdout,
      /^idempotency_conflict: The Idempotency-Key was used .*Give another key.*HTTP status +409/s,
    );
  });

  test("suggests codes for a word that is none", async () => {
    const { code, stderr } = await runCommand(["explain", "cursor"]);
    assert.equal(code, 2);
    assert.match(stderr, /Did you mean invalid_cursor, cursor_expired\?/);
  });
});
