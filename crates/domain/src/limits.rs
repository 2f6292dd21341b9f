//! Every bound in one place, each with the reason for its number.

/// LIMIT: a title is a line that a list shows; 512 bytes hold about a hundred words in any script.
pub const TITLE_BYTES_MAX: usize = 512;
/// LIMIT: a note's text; far above anything written by hand, far below what stalls a sync.
pub const NOTE_TEXT_BYTES_MAX: usize = 1 << 20;
/// LIMIT: a canonical body; escaping can make a text six times as long, and the longest note must still fit.
pub const BODY_BYTES_MAX: usize = 7 << 20;
/// LIMIT: writes in one commit; they share one log range and are held in memory twice.
pub const COMMIT_WRITES_MAX: usize = 1_000;
/// LIMIT: bodies and request of one commit; two of the longest bodies fit, and a group of them in memory.
pub const COMMIT_BYTES_MAX: usize = 16 << 20;
/// LIMIT: guards in one commit; each is a read inside the write transaction.
pub const COMMIT_GUARDS_MAX: usize = 64;
/// LIMIT: commits in one group; beyond this the wait for the first grows and nothing is saved.
pub const GROUP_COMMITS_MAX: usize = 256;
/// LIMIT: canonical body bytes in one group, so that the WAL stays near its checkpoint size.
pub const GROUP_BYTES_MAX: usize = 8 << 20;
/// LIMIT: commits that wait for the writer; a caller beyond it waits itself.
pub const QUEUE_COMMITS_MAX: usize = 1_024;
/// LIMIT: `cause_depth`; a person's act is 0, and a ninth link in a chain of agents is a loop.
pub const CAUSE_DEPTH_MAX: u8 = 8;
/// LIMIT: rows in one page of a scan.
pub const PAGE_ROWS_MAX: usize = 1_000;
/// LIMIT: a snapshot that lives longer keeps the WAL from shrinking.
pub const SNAPSHOT_AGE_MS_MAX: u64 = 2_000;
/// LIMIT: readers open at once; the next one waits.
pub const READERS_MAX: usize = 4;
/// LIMIT: one part of a token; ids and keys are far shorter.
pub const TOKEN_BYTES_MAX: usize = 256;
/// LIMIT: a search query; enough for a pasted sentence.
pub const QUERY_BYTES_MAX: usize = 1_024;
/// LIMIT: a client key (`--operation-id`); a UUID has 36 bytes.
pub const CLIENT_KEY_BYTES_MAX: usize = 200;
/// LIMIT: keywords of one note.
pub const LABELS_MAX: usize = 64;
