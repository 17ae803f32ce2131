"""The wire protocol: a schema language, a compiler for it, framing, and Kafka's messages.

Reading order: :mod:`~dohle.protocol.schema` (how a message is declared), any file under
``messages/`` (declarations), :mod:`~dohle.protocol.codec.compiler` (how a message and a version
become two functions),
:mod:`~dohle.protocol.apis` (from an api key to a message without importing the others),
:mod:`~dohle.protocol.framing` (requests and responses on a connection) and
:mod:`~dohle.protocol.record_framing` (messages as records in Kafka's internal topics).
"""
