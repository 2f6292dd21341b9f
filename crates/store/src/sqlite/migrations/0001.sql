-- The first schema. Its text never changes; later steps are files of their own.
CREATE TABLE meta(key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;

-- Numbers for (host, stream), so that one integer is a place in the log: stream << 40 | counter.
CREATE TABLE streams(n INTEGER PRIMARY KEY, host BLOB NOT NULL, stream TEXT NOT NULL, UNIQUE(host, stream)) STRICT;

CREATE TABLE log(
  pos INTEGER PRIMARY KEY,
  before INTEGER NOT NULL,
  after INTEGER NOT NULL,
  kind TEXT NOT NULL,
  schema INTEGER NOT NULL,
  workspace BLOB NOT NULL,
  id BLOB NOT NULL,
  op TEXT NOT NULL,
  version INTEGER NOT NULL,
  edits TEXT,
  fields TEXT,
  clock TEXT,
  actor BLOB NOT NULL,
  operation BLOB NOT NULL,
  run_key BLOB,
  source_event BLOB,
  cause_depth INTEGER NOT NULL,
  at INTEGER NOT NULL,
  body_hash BLOB,
  chain BLOB NOT NULL,
  previous INTEGER
) STRICT;
CREATE INDEX log_operation ON log(operation) WHERE before = 0;

-- What can be erased. A rebuild never drops it.
CREATE TABLE bodies(pos INTEGER PRIMARY KEY, salt BLOB, request BLOB, body TEXT) STRICT;

CREATE TABLE log_head(stream INTEGER PRIMARY KEY, counter INTEGER NOT NULL, chain BLOB NOT NULL, at INTEGER NOT NULL) STRICT;

-- Heads of the other domains, as they were when this file was last told.
CREATE TABLE witnesses(
  domain TEXT NOT NULL,
  host BLOB NOT NULL,
  stream TEXT NOT NULL,
  counter INTEGER NOT NULL,
  chain BLOB NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY(domain, host, stream)
) STRICT, WITHOUT ROWID;

-- Outcomes of commits that left nothing in the log.
CREATE TABLE outcomes(
  operation BLOB PRIMARY KEY,
  salt BLOB NOT NULL,
  request BLOB NOT NULL,
  at INTEGER NOT NULL,
  outcome TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE aggregates(
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  members TEXT NOT NULL,
  value INTEGER NOT NULL,
  PRIMARY KEY(kind, name, members)
) STRICT, WITHOUT ROWID;

-- The declaration that each record table was made from.
CREATE TABLE projections(name TEXT PRIMARY KEY, ddl TEXT NOT NULL) STRICT, WITHOUT ROWID;

-- For whoever opens the file by hand.
CREATE VIEW log_entries AS
  SELECT hex(streams.host) AS host, streams.stream AS stream, log.pos & ((1 << 40) - 1) AS counter, log.kind, log.op,
         hex(log.id) AS id, log.version, datetime(log.at / 1000, 'unixepoch') AS at, bodies.body
  FROM log JOIN streams ON streams.n = log.pos >> 40 LEFT JOIN bodies ON bodies.pos = log.pos;
