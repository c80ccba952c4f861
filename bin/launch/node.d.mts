export function isNodeSupported(version: string): boolean;
export function pinnedNode(root: string, platform?: NodeJS.Platform, arch?: string): string | null;
