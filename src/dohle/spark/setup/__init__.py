"""What Spark needs on this machine: Java, launchers, a self-test."""
