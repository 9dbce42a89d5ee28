//! Record batches: view, validate, build, checksum, compress. Magic 2, and reading of magic 0 and 1.
