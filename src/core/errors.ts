/** The error lives in `wire`, so that the reader of job files and the client share it; the rest imports it from here. */
export { type FieldError, HoldfastError, isHoldfastError } from "../wire/holdfast-error.ts";
