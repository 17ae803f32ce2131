"""Record batches to and from Arrow columns, with numpy. Needs the extra ``columnar``."""
