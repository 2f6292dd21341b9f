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
/// LIMIT: a task's description, as the specification's sibling has it.
pub const TASK_DESCRIPTION_CHARS_MAX: usize = 500;
/// LIMIT: preconditions of a task, and its required effects; each is a read in every cycle.
pub const TASK_LINKS_MAX: usize = 16;
/// LIMIT: an artifact's key; it is a name, not a text.
pub const ARTIFACT_KEY_BYTES_MAX: usize = 200;
/// LIMIT: an artifact's content; a script or a context page, not a file.
pub const ARTIFACT_CONTENT_BYTES_MAX: usize = 64 << 10;
/// LIMIT: a model's answer; what is longer is refused before it is read.
pub const ANSWER_BYTES_MAX: usize = 256 << 10;
/// LIMIT: actions of one run that wait for a person; more would wear the person down.
pub const PARKED_MAX: usize = 8;
/// LIMIT: tasks of one status that a cycle looks at; the counts cover the rest.
pub const BOARD_TASKS_MAX: usize = 100;
/// LIMIT: artifacts that a cycle lists by name.
pub const BOARD_ARTIFACTS_MAX: usize = 50;
/// LIMIT: wakes that one run answers; what waits beyond them forms the next run.
pub const WAKES_PER_RUN_MAX: usize = 64;
/// LIMIT: what a person says to a run, a reason or a reply; it is sent with every ask after it.
pub const PERSON_TEXT_BYTES_MAX: usize = 4 << 10;
