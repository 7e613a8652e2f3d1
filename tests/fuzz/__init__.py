"""Random writes between calls: compiled against plain."""
