"""Figures of dohle beside those of a peer: ratios, tables, pictures, results on disk."""
