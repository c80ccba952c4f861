import { Argument, Command, Option } from "commander";
import { databaseOf } from "../config.ts";
import { errorCatalogue } from "../wire/errors.ts";
import { completerName, completionScript, completions, type Shell, shells, suggest } from "./complete.ts";
import type { CommandContext, ServerFlags } from "./context.ts";
import { contextNames, contextsPath } from "./contexts.ts";
import { deliveryCommands } from "./delivery-commands.ts";
import { labelFlag, limitFlag, numberFlag } from "./flags.ts";
import { lazyCommand } from "./lazy-command.ts";
import { at, serverCommand } from "./server-command.ts";
import { sessionResources } from "./session-resources.ts";
import { workResources } from "./work-resources.ts";

const states = ["queued", "running", "succeeded", "failed", "cancelled"];

/**
 * All commands. What a command does is imported when it runs, so that `--help` and short ones start quickly. `version`
 * is null where the line begins with a command, whose own `--version` means something else.
 */
export function createProgram(context: CommandContext, version: string | null): Command {
  const program = new Command("holdfast")
    .description("Run jobs that are leased, fenced, watched and never lost.")
    .helpCommand("help [command]", "help for a command")
    .option("--url <url>", "the server (or HOLDFAST_URL)")
    .option("--token-file <file>", "file with the token (or HOLDFAST_TOKEN)")
    .addOption(contextOption(context))
    .configureHelp({ showGlobalOptions: true });
  if (version !== null) program.version(version, "-V, --version");
  program.addHelpText(
    "after",
    `
Examples:
  $ npm start                     the whole system on this machine
  $ holdfast run job.yaml         submit a job and follow it
  $ holdfast get jobs             what there is
  $ holdfast logs -f ID           its output, as it comes
  $ holdfast session start notes  talk to an agent

The server is the one of --url or --context, HOLDFAST_URL or HOLDFAST_CONTEXT, else the one that runs in this
checkout, else the context in use.
Exit codes: 0 ok, 2 usage, 3 not found, 4 denied, 5 conflict, 6 unavailable, 7 job failed, 8 job cancelled,
9 doctor found something, 12 something is needed first.`,
  );
  jobCommands(program, context);
  sessionCommands(program, context);
  readingCommands(program, context);
  changingCommands(program, context);
  operatorCommands(program, context);
  helpingCommands(program, context);
  return program;
}

function contextOption({ config }: CommandContext): Option {
  const option = new Option(
    "--context <name>",
    "a server that `context set` has named (or HOLDFAST_CONTEXT)",
  );
  suggest(option, () => contextNames(contextsPath(config.configHome)));
  return option;
}

function jobCommands(program: Command, context: CommandContext): void {
  serverCommand(
    program,
    "run <file>",
    "submit a job and follow it to its end",
    ["text", "json"],
    [
      ["holdfast run job.yaml", "phases and log lines, live; Ctrl-C detaches"],
      ["holdfast run - < job.yaml", "from standard input"],
      ["holdfast run job.yaml --detach", "print the id and return"],
    ],
  )
    .addOption(labelFlag())
    .addOption(numberFlag("--priority <number>", "0 is the most urgent", 0, 3))
    .option("--idempotency-key <key>", "the same key and job are submitted only once")
    .option("--detach", "do not follow")
    .action(async (file: string, flags) => (await import("./run.ts")).run(context, file, at(program, flags)));

  serverCommand(
    program,
    "logs <id>",
    "a job's output",
    ["text", "json"],
    [
      ["holdfast logs 01976b2c-0000", "all there is; the beginning of an id will do"],
      ["holdfast logs -f ID --phase build", "one phase, as it comes"],
      ["holdfast logs ID --tail 50 --timestamps", "the last 50 lines, with their times"],
      ["holdfast logs ID --since 10m --attempt 2", "the last ten minutes of the second attempt"],
    ],
  )
    .option("-f, --follow", "go on until the job is over")
    .option("--phase <name>", "of this phase alone")
    .addOption(numberFlag("--attempt <number>", "of this attempt alone", 1, 2))
    .option("--since <time>", "nothing older: a duration (10m: so long ago) or an instant (RFC 3339)")
    .addOption(numberFlag("--tail <number>", "only the last so many lines of what is there", 0, 999_999))
    .option("--timestamps", "with the time of each line")
    .option("--prefix", "with attempt and phase before each line")
    .action(async (id: string, flags) => (await import("./logs.ts")).logs(context, id, at(program, flags)));
}

function sessionCommands(program: Command, context: CommandContext): void {
  lazyCommand(program, "agent", "make, change and list the agents that sessions are begun with", async () =>
    (await import("./agent.ts")).agentCommand(context, program),
  );
  lazyCommand(program, "session", "begin sessions of agents, talk to them, see what they did", async () =>
    (await import("./session.ts")).sessionCommand(context, program),
  );
  lazyCommand(
    program,
    "work",
    "submit deferred effects, and decide about those that need somebody",
    async () => (await import("./work.ts")).workCommand(context, program),
  );
}

function readingCommands(program: Command, context: CommandContext): void {
  const get = program.command("get").description("list resources");
  serverCommand(
    get,
    "jobs [id...]",
    "jobs, newest first",
    ["text", "json", "yaml", "name"],
    [
      ["holdfast get jobs --state failed", "those that failed"],
      ["holdfast get jobs --label team=web --watch", "one team's, and each change"],
      ["holdfast get jobs -o name | xargs holdfast cancel", "for programs"],
    ],
  )
    .alias("job")
    .addOption(new Option("--state <state>", "in this state").choices(states))
    .addOption(labelFlag())
    .option("--name <name>", "of this name")
    .addOption(limitFlag())
    .option("-w, --watch", "go on with each change")
    .action(async (ids: string[], flags) =>
      (await import("./get.ts")).getJobs(context, ids, at(program, flags)),
    );

  serverCommand(
    get,
    "commands",
    "the audit: who asked for what, when, and what came of it",
    ["text", "json", "yaml", "name"],
    [
      ["holdfast get commands --target /v1/jobs/ID", "what was done to one job"],
      ["holdfast get commands --principal ci -o json", "what one caller did, for programs"],
    ],
  )
    .option("--principal <name>", "by this caller")
    .option("--operation <name>", "of this operation, such as jobs.submit")
    .option("--target <path>", "about this resource, by its path")
    .addOption(limitFlag())
    .action(async (flags) => (await import("./get-commands.ts")).getCommands(context, at(program, flags)));

  const describe = program.command("describe").description("all about one resource");
  serverCommand(
    describe,
    "job <id>",
    "a job, its attempts, sandboxes and artifacts",
    ["text", "json", "yaml"],
    [
      ["holdfast describe job ID", "in words"],
      ["holdfast describe job ID -o json", "for programs"],
    ],
  ).action(async (id: string, flags: ServerFlags) =>
    (await import("./describe.ts")).describeJob(context, id, at(program, flags)),
  );

  sessionResources({ program, get, describe }, context);
  workResources({ program, get, describe }, context);
  deliveryCommands({ program, get, describe }, context);

  serverCommand(
    program,
    "watch",
    "changes as they happen",
    ["text", "json"],
    [
      ["holdfast watch --job ID", "of one job and all that belongs to it"],
      ["holdfast watch -o json --after CURSOR", "go on after the last cursor that was printed"],
    ],
  )
    .option("--job <id>", "of this job")
    .option("--session <id>", "of this session")
    .option("--kind <kind>", "of this kind of resource")
    .option("--after <cursor>", "those after this cursor")
    .action(async (flags) => (await import("./watch-changes.ts")).watch(context, at(program, flags)));

  serverCommand(
    program,
    "download <id> [name]",
    "an artifact, verified",
    ["text", "json"],
    [
      ["holdfast download ID", "its only artifact, under its own name"],
      ["holdfast download ID site.tar.gz -O /tmp/site.tar.gz", "to a file"],
    ],
  )
    .option("-O, --output-file <file>", "where to")
    .option("--force", "replace the file when it exists")
    .action(async (id: string, name: string | undefined, flags) =>
      (await import("./download.ts")).download(context, id, name, at(program, flags)),
    );
}

function changingCommands(program: Command, context: CommandContext): void {
  serverCommand(
    program,
    "cancel <id...>",
    "ask jobs to stop",
    ["text", "json", "name"],
    [['holdfast cancel ID --reason "wrong branch"', "the reason is kept with the job"]],
  )
    .option("--reason <text>", "why")
    .action(async (ids: string[], flags) =>
      (await import("./cancel.ts")).cancel(context, ids, at(program, flags)),
    );

  serverCommand(
    program,
    "confirm-stopped <id>",
    "declare that a job's sandbox has stopped, where nothing can prove it",
    ["text", "json"],
    [
      [
        'holdfast confirm-stopped ID --reason "node-7 was scrapped"',
        "its slot comes back; kept with your name",
      ],
    ],
  )
    .requiredOption("--reason <text>", "how you know")
    .option("--sandbox <name>", "which, when several are in question")
    .action(async (id: string, flags) =>
      (await import("./confirm-stopped.ts")).confirmStopped(context, id, at(program, flags)),
    );

  serverCommand(
    program,
    "patch <id>",
    "change a job's priority or labels",
    ["text", "json", "yaml", "name"],
    [["holdfast patch ID --priority 0", "the most urgent; while it waits"]],
  )
    .addOption(numberFlag("--priority <number>", "0 is the most urgent", 0, 3))
    .addOption(labelFlag())
    .action(async (id: string, flags) => (await import("./patch.ts")).patch(context, id, at(program, flags)));

  serverCommand(
    program,
    "label <id> <change...>",
    "set or remove labels",
    ["text", "json", "yaml", "name"],
    [["holdfast label ID team=web old-", "set team, remove old"]],
  ).action(async (id: string, changes: string[], flags: ServerFlags) =>
    (await import("./patch.ts")).label(context, id, changes, at(program, flags)),
  );
}

function operatorCommands(program: Command, context: CommandContext): void {
  const { config, terminal } = context;
  serverCommand(
    program,
    "doctor",
    "ask a store whether what is always true of it is true",
    ["text", "json"],
    [
      ["holdfast doctor", "the database of HOLDFAST_DATABASE_URL, else the running server"],
      ["holdfast doctor --tenant acme -o json", "one tenant, for programs"],
    ],
  )
    .option("--database-url <url>", "this database")
    .option("--tenant <id>", "this tenant alone")
    .action(async (flags) => (await import("./doctor.ts")).doctor(context, at(program, flags)));
  lazyCommand(program, "schema", "see and change the database's schema", async () => {
    const { runningStore } = await import("../dev/running.ts");
    return (await import("./schema.ts")).schemaCommand({
      database: config.database === null ? undefined : databaseOf(config),
      running: () => runningStore(context.directory),
      installation: config.installation ?? undefined,
      write: (text) => void terminal.out(text),
    });
  });
  lazyCommand(program, "drain", "admit nothing new of some kinds while the rest goes on", async () =>
    (await import("./drain.ts")).drainCommand(context),
  );
  lazyCommand(program, "resume", "admit drained kinds again", async () =>
    (await import("./drain.ts")).resumeCommand(context),
  );
  lazyCommand(program, "tenant", "what operators of the installation do about a tenant", async () =>
    (await import("./work.ts")).tenantCommand(context, program),
  );
  lazyCommand(program, "token", "make, list, rotate and revoke the tokens of a tenant", async () =>
    (await import("./token.ts")).tokenCommand(context),
  );
  lazyCommand(program, "gateway", "serve the public API", async () =>
    (await import("./serve.ts")).gatewayCommand(context),
  );
  lazyCommand(program, "controller", "start jobs and drive their attempts", async () =>
    (await import("./serve.ts")).controllerCommand(context),
  );
  lazyCommand(program, "direct-claimant", "run historical jobs as containers of this host", async () =>
    (await import("./direct-claimant.ts")).directClaimantCommand(context),
  );
  lazyCommand(program, "dev", "PostgreSQL and the whole system in one process", async () =>
    (await import("./dev.ts")).devCommand(context),
  );
  lazyCommand(program, "start", "what `npm start` runs: dev, and the example job", async () =>
    (await import("./start.ts")).startCommand(context),
  );
}

function helpingCommands(program: Command, context: CommandContext): void {
  const explain = serverCommand(
    program,
    "explain [code]",
    "what an error code means, and what to do",
    ["text", "json", "yaml"],
    [
      ["holdfast explain idempotency_conflict", "one"],
      ["holdfast explain", "all of them"],
    ],
  ).action(async (code: string | undefined, flags: ServerFlags) =>
    (await import("./explain.ts")).explain(context, code, flags),
  );
  suggest(explain.registeredArguments[0], () => Object.keys(errorCatalogue));
  lazyCommand(program, "context", "name servers, and choose between them", async () =>
    (await import("./context-command.ts")).contextCommand(context, program),
  );
  const { terminal } = context;
  program
    .command("completion")
    .description("print the script that completes commands and flags in a shell")
    .addArgument(new Argument("<shell>").choices(shells))
    .addHelpText("after", completionHelp)
    .action((shell: Shell) => terminal.out(completionScript[shell]));
  program
    .command(completerName, { hidden: true })
    .argument("[words...]")
    .action(async (words: string[]) => {
      const found = await completions(program, words);
      await terminal.out(found.map((word) => `${word}\n`).join(""));
    });
}

const completionHelp = `
Examples:
  $ eval "$(holdfast completion bash)"        in this shell; in ~/.bashrc or ~/.zshrc for each
  $ holdfast completion fish | source         the same for fish`;
