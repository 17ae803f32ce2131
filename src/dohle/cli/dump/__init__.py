"""What ``dohle log dump`` shows of each kind of file."""
