"""What a broker does for transactions: markers, verification, producer ids."""
