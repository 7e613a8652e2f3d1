"""Guards: each kind holds while what it speaks of is unchanged, and fails when it has changed."""
