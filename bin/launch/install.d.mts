export function installPackages(options: {
  readonly folder: string;
  readonly locks: string;
  readonly name: string;
  readonly title: string;
}): Promise<void>;
