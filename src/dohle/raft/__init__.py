"""The quorum behind the metadata log. Pure: so far what its control records say of its voters."""
