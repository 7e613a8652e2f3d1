"""What the differential driver and the other test packages share."""
