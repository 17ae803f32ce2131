"""Every setting in one table: name, type, default, doc, scope, and whether it is dynamic."""
