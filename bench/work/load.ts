/** Loaded by name: they are installed beside this file, and only for the benchmark. */
export const load = (name: string): Promise<unknown> => import(name);
