/** In `wire`, so that the console shows such text in the same way. */
export { visible } from "../wire/visible.ts";
