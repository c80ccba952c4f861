/** Runs a program with our streams and passes signals on; gives the status to exit with. */
export function runChild(
  node: string,
  args: readonly string[],
  options?: { readonly cwd?: string; readonly env?: Readonly<Record<string, string>> },
): Promise<number>;
