import { resolve } from "node:path";
import { Command } from "commander";
import { suggest } from "./complete.ts";
import { urlFrom } from "./connection.ts";
import type { CommandContext, ServerFlags } from "./context.ts";
import {
  type Contexts,
  contextName,
  contextNames,
  contextsPath,
  readContexts,
  serverNamed,
  withoutServer,
  withServer,
  writeContexts,
} from "./contexts.ts";
import { UsageError } from "./failures.ts";
import { printList } from "./listing.ts";
import { spelled } from "./program-name.ts";
import { at, serverCommand } from "./server-command.ts";

/** `holdfast context …`: servers by short names. Nothing here asks a server. */
export function contextCommand(context: CommandContext, program: Command): Command {
  const command = new Command("context").description("name servers, and choose between them");
  const path = contextsPath(context.config.configHome);
  const change = async (next: Contexts, said: string) => {
    await writeContexts(path, next);
    await context.terminal.out(`${said}\n`);
  };

  serverCommand(
    command,
    "set <name>",
    "name a server: the one of --url, with the token of --token-file",
    ["text"],
    [
      [
        "holdfast context set prod --url https://holdfast.example.com --token-file ~/.prod-token",
        "the token stays in its file",
      ],
    ],
  ).action((name: string, flags: ServerFlags) => {
    const { url, tokenFile } = at(program, flags);
    if (url === undefined) throw new UsageError("give the server's --url");
    const file = tokenFile === undefined ? null : resolve(context.directory, tokenFile);
    const server = { url: urlFrom(url), tokenFile: file };
    return change(
      withServer(readContexts(path), contextName(name), server),
      `context ${name} is ${server.url}`,
    );
  });

  const use = serverCommand(
    command,
    "use <name>",
    "use it where nothing nearer names a server",
    ["text"],
    [["holdfast context use prod", "until another one is used"]],
  ).action((name: string) => {
    const contexts = readContexts(path);
    const { url } = serverNamed(contexts, name);
    return change({ ...contexts, current: name }, `using context ${name}, ${url}`);
  });

  serverCommand(
    command,
    "list",
    "all of them",
    ["text", "json", "yaml", "name"],
    [["holdfast context list", "the one in use has a mark"]],
  ).action((flags: ServerFlags) => {
    const { current, servers } = readContexts(path);
    const items = [...servers].map(([name, { url, tokenFile }]) => ({
      name,
      current: name === current,
      url,
      token_file: tokenFile,
    }));
    return printList(
      context,
      flags,
      {
        kind: "context",
        heading: ["", "NAME", "URL", "TOKEN FILE"],
        row: (one) => [one.current ? "*" : " ", one.name, one.url, one.token_file ?? ""],
        nameOf: ({ name }) => name,
        none: spelled("no contexts; `holdfast context set NAME --url URL` makes one"),
      },
      items,
      false,
    );
  });

  const remove = serverCommand(
    command,
    "delete <name>",
    "forget it; the token's file stays",
    ["text"],
    [["holdfast context delete prod", "no server is asked"]],
  ).action((name: string) => {
    const contexts = readContexts(path);
    serverNamed(contexts, name);
    return change(withoutServer(contexts, name), `context ${name} is forgotten`);
  });
  for (const one of [use, remove]) suggest(one.registeredArguments[0], () => contextNames(path));
  return command;
}
