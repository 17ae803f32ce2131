"""Messages that are stored: records of internal topics, control records, files."""
