/** Bounds of what is shown at a glance. */
export const overviewLimits = {
  /** Nothing is counted beyond it: a count that has reached it means "or more". */
  countMax: 10_000,
  recentHours: 24,
  leasesMax: 500,
  incarnationsMax: 100,
} as const;
