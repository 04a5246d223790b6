-- The hash of the last bytes that were read has one name.

ALTER TABLE sessions RENAME COLUMN seam TO tail_hash;
