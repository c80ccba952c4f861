export const root: string;
export function main(run: () => number | Promise<number>): Promise<void>;
