"""One file per API family. Each opens with what it serves; ``registry`` puts them together."""
