"""The cluster's metadata: the image, and the controller that decides what to write next.

Everything here is pure. A command reads the image and returns records and a reply; only replaying
records changes the image, so that a restart, a fail-over and normal running are the same code.

Reading order: ``image``, ``replay``, ``snapshot``; then ``decision`` and the commands
(``bootstrap``, ``brokers``, ``topics``, ``topic_changes``, ``configs``, ``features``,
``producer_ids``); then ``queries``.
"""
