"""The codecs of record batches, with bounds on what they may decompress to."""
