"""Regular expressions in RE2 syntax, matched in linear time."""
