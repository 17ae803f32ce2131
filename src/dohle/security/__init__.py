"""Who somebody is and how they prove it: certificates, TLS, SASL. Decides; does no network I/O."""
