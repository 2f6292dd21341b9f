-- The first schema. Its text never changes; every step after it is a file of its own.
CREATE TABLE meta(key TEXT COLLATE "C" PRIMARY KEY, value BYTEA NOT NULL);

-- Numbers for (host, stream), so that one integer is a place in the log: stream << 40 | counter.
CREATE TABLE streams(n BIGINT PRIMARY KEY, host BYTEA NOT NULL, stream TEXT COLLATE "C" NOT NULL, UNIQUE(host, stream));

CREATE TABLE log(
  pos BIGINT PRIMARY KEY,
  before BIGINT NOT NULL,
  after BIGINT NOT NULL,
  kind TEXT COLLATE "C" NOT NULL,
  schema BIGINT NOT NULL,
  workspace BYTEA NOT NULL,
  id BYTEA NOT NULL,
  op TEXT COLLATE "C" NOT NULL,
  version BIGINT NOT NULL,
  edits TEXT COLLATE "C",
  fields TEXT COLLATE "C",
  clock TEXT COLLATE "C",
  actor BYTEA NOT NULL,
  operation BYTEA NOT NULL,
  run_key BYTEA,
  source_event BYTEA,
  cause_depth BIGINT NOT NULL,
  at BIGINT NOT NULL,
  body_hash BYTEA,
  chain BYTEA NOT NULL,
  previous BIGINT
);
CREATE INDEX log_operation ON log(operation) WHERE before = 0;

-- What can be erased. A rebuild never drops it.
CREATE TABLE bodies(pos BIGINT PRIMARY KEY, salt BYTEA, request BYTEA, body TEXT COLLATE "C");

-- Half of each page stays free: a head is updated in place by every group.
CREATE TABLE log_head(stream BIGINT PRIMARY KEY, counter BIGINT NOT NULL, chain BYTEA NOT NULL, at BIGINT NOT NULL)
  WITH (fillfactor = 50);

-- Heads of the other domains, as they were when this one was last told.
CREATE TABLE witnesses(
  domain TEXT COLLATE "C" NOT NULL,
  host BYTEA NOT NULL,
  stream TEXT COLLATE "C" NOT NULL,
  counter BIGINT NOT NULL,
  chain BYTEA NOT NULL,
  at BIGINT NOT NULL,
  PRIMARY KEY(domain, host, stream)
);

-- Outcomes of commits that left nothing in the log.
CREATE TABLE outcomes(
  operation BYTEA PRIMARY KEY,
  salt BYTEA NOT NULL,
  request BYTEA NOT NULL,
  at BIGINT NOT NULL,
  outcome TEXT COLLATE "C" NOT NULL
);

CREATE TABLE aggregates(
  kind TEXT COLLATE "C" NOT NULL,
  name TEXT COLLATE "C" NOT NULL,
  members TEXT COLLATE "C" NOT NULL,
  value BIGINT NOT NULL,
  PRIMARY KEY(kind, name, members)
) WITH (fillfactor = 50);

-- The declaration that each record table was made from.
CREATE TABLE projections(name TEXT COLLATE "C" PRIMARY KEY, ddl TEXT COLLATE "C" NOT NULL);
