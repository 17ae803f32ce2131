"""One file per API family. Each begins with the APIs it serves; ``registry`` lists the handlers."""
