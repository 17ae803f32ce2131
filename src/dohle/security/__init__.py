"""Who may do what. Pure: it decides by the ACLs that it is told, and asks nobody."""
