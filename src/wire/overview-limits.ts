/** Bounds of what is shown at a glance. */
export const overviewLimits = {
  /** Nothing is counted beyond it, and no more leases of a kind are looked at: "or more", once it is reached. */
  countMax: 10_000,
  recentHours: 24,
  leasesMax: 500,
  incarnationsMax: 100,
} as const;
