"""Being a member of a group: assignors, membership, commits."""
