"""Who somebody is and how they prove it, and who may do what. Decides; does no network I/O."""
