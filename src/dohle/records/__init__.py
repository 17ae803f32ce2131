"""Record batches: the bytes that producers send, disks keep and consumers read."""
