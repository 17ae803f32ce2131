"""What a log remembers about idempotent and transactional producers."""
