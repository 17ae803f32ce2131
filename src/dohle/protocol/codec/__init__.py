"""From a message declaration to the code that encodes and decodes it."""
