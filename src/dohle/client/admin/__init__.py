"""Administration of topics, configs, groups and transactions."""
