"""What a leader checks of a batch before it appends it: the rules, and a fast path."""
