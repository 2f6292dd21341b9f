//! The error-code table: every code that a person or a program may meet, who can put it right, and how each surface reports it.
//!
//! A code is for ever: its text may not change and is never reused. Each has a page in `docs/errors/`, which `cargo xtask tidy` checks.

use std::fmt;

use crate::named::named_enum;

named_enum! {
    /// Who can put it right.
    Fixer {
        /// Whoever called: another argument, a fresh version, a repeat.
        Caller = "caller",
        /// The person who owns the home: disk, permissions, files.
        Owner = "owner",
        /// Nobody but a developer.
        Developer = "developer",
    }
}

/// What the process ends with. The table is in `docs/exit-codes.md`.
pub mod exit {
    pub const INTERNAL: u8 = 1;
    pub const USAGE: u8 = 2;
    pub const NOT_FOUND: u8 = 3;
    pub const CONFLICT: u8 = 4;
    pub const REFUSED: u8 = 5;
    pub const HOME: u8 = 6;
    pub const STORAGE: u8 = 7;
    pub const DAMAGED: u8 = 8;
}

macro_rules! codes {
    ($($(#[$meta:meta])* $variant:ident = $text:literal, $fixer:ident, $http:literal, $exit:ident, $next:literal;)+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ErrorCode { $($(#[$meta])* $variant),+ }

        impl ErrorCode {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            #[must_use]
            pub const fn fixer(self) -> Fixer {
                match self { $(Self::$variant => Fixer::$fixer),+ }
            }

            #[must_use]
            pub const fn http_status(self) -> u16 {
                match self { $(Self::$variant => $http),+ }
            }

            #[must_use]
            pub const fn exit_code(self) -> u8 {
                match self { $(Self::$variant => exit::$exit),+ }
            }

            /// The next step, in one sentence.
            #[must_use]
            pub const fn next_step(self) -> &'static str {
                match self { $(Self::$variant => $next),+ }
            }
        }
    };
}

codes! {
    InvalidArgument = "invalid_argument", Caller, 422, USAGE, "correct the named argument and try again";
    UnknownKind = "unknown_kind", Caller, 422, USAGE, "use one of the kinds that the message lists";
    NoteNotFound = "NOTE_NOT_FOUND", Caller, 404, NOT_FOUND, "see what there is with `verger note list`; `verger note restore` brings a deleted note back";
    WorkspaceNotFound = "WORKSPACE_NOT_FOUND", Caller, 404, NOT_FOUND, "use a workspace that exists; `home` always does";
    EntryNotFound = "entry_not_found", Caller, 404, NOT_FOUND, "see which entries there are with `verger log tail`";
    CursorNotFound = "cursor_not_found", Caller, 404, NOT_FOUND, "see which consumers there are with `verger log cursor list`";
    VersionConflict = "VERSION_CONFLICT", Caller, 409, CONFLICT, "read the record again and repeat the change on its current version";
    OperationIdReused = "operation_id_reused", Caller, 409, CONFLICT, "use a fresh operation id for a different request";
    DuplicateKey = "duplicate_key", Caller, 409, CONFLICT, "use another key, or change the record that holds this one";
    GuardFailed = "guard_failed", Caller, 409, CONFLICT, "read the named record again and decide anew";
    LimitReached = "limit_reached", Caller, 409, REFUSED, "wait, or have the limit raised";
    Fenced = "fenced", Caller, 409, REFUSED, "nothing: the subject was stopped, and this work belongs to an earlier epoch";
    TaskNotFound = "TASK_NOT_FOUND", Caller, 404, NOT_FOUND, "see what there is with `verger task list`";
    AgentNotFound = "agent_not_found", Caller, 404, NOT_FOUND, "see which agents there are with `verger agent list`";
    RunNotFound = "run_not_found", Caller, 404, NOT_FOUND, "see which runs there are with `verger run list`";
    PromptNotFound = "prompt_not_found", Caller, 404, NOT_FOUND, "see what waits for an answer with `verger inbox list`";
    ManifestInvalid = "manifest_invalid", Caller, 422, USAGE, "correct the named line or field of the manifest and try again";
    Stopped = "stopped", Owner, 409, REFUSED, "release the switch with `verger stop --release` when it is safe again";
    AgentDestroyed = "agent_destroyed", Caller, 409, REFUSED, "nothing: a destroyed agent stays destroyed; make a new one";
    AgentDormant = "agent_dormant", Owner, 409, REFUSED, "resume it with `verger agent resume` when it may work again";
    CrossWorkspaceRejected = "CROSS_WORKSPACE_REJECTED", Caller, 403, REFUSED, "name something in the agent's own workspace";
    ScopeViolation = "SCOPE_VIOLATION", Owner, 403, REFUSED, "allow the kind in the agent's manifest, if it should be allowed";
    OutOfScope = "out_of_scope", Owner, 403, REFUSED, "allow the category in the agent's manifest, if it should be allowed";
    CapabilityDenied = "capability_denied", Owner, 403, REFUSED, "grant the capability in the agent's manifest, if it should have it";
    UnknownTool = "unknown_tool", Caller, 422, REFUSED, "use a tool that the agent's manifest names";
    BudgetExceeded = "budget_exceeded", Owner, 409, REFUSED, "wait for the next day, or raise the limit with `verger budget set`";
    ConfirmationRequired = "confirmation_required", Owner, 409, REFUSED, "answer the question: `verger inbox list`, then `approve` or `deny`";
    DeniedByPerson = "denied_by_person", Caller, 409, REFUSED, "propose something else: this was denied for the state it was made on";
    PendingApproval = "pending_approval", Caller, 409, REFUSED, "wait: the same act is already waiting for a person";
    PromptClosed = "prompt_closed", Caller, 409, CONFLICT, "nothing: the first answer counts, and an item that expired or was withdrawn takes none";
    PromptExpired = "prompt_expired", Owner, 409, REFUSED, "start the run again if the act is still wanted";
    Superseded = "superseded", Caller, 409, CONFLICT, "answer the new item that was made on the present state";
    UnsafeTarget = "unsafe_target", Caller, 422, REFUSED, "name a target that exists and is not ambiguous";
    TaskNotEligible = "task_not_eligible", Caller, 409, REFUSED, "choose among the eligible tasks";
    VerificationFailed = "verification_failed", Developer, 500, DAMAGED, "look at the run's trace: the store does not hold what was acknowledged";
    ProposalInvalid = "proposal_invalid", Caller, 422, REFUSED, "look at the faults in the run's trace; the model has to answer in the schema";
    LoopLimit = "LOOP_LIMIT", Owner, 409, REFUSED, "raise the cap in the agent's manifest, if the agent should do more per cycle";
    IterationLimit = "ITERATION_LIMIT", Owner, 409, REFUSED, "look at the trace for a loop, or raise `max_iterations` in the manifest";
    WallTimeLimit = "wall_time_limit", Owner, 409, REFUSED, "look at the trace for what took so long, or raise `max_wall_ms` in the manifest";
    TokenLimit = "token_limit", Owner, 409, REFUSED, "look at the trace for what used them, or raise `max_tokens` in the manifest";
    LlmTimeout = "LLM_TIMEOUT", Owner, 504, REFUSED, "look whether the model's server runs, then start the run again";
    ScriptEnded = "script_ended", Caller, 409, REFUSED, "add replies to the manifest's script; a `no_op` ends a run";
    Cancelled = "cancelled", Caller, 409, REFUSED, "nothing: a person cancelled the run; start a new one";
    RunEnded = "run_ended", Caller, 409, CONFLICT, "nothing: the run has ended; start a new one";
    InDoubt = "in_doubt", Owner, 409, REFUSED, "look at the other system whether the act took place; it is not repeated by itself";
    CauseDepthExceeded = "cause_depth_exceeded", Owner, 409, REFUSED, "look which agents wake each other in a circle";
    RecordingDamaged = "recording_damaged", Caller, 422, DAMAGED, "take the recording again, or replay the run from its home";
    ReplayDiverged = "replay_diverged", Developer, 409, DAMAGED, "report it with the recording: the same inputs led to another decision";
    ReplayUnverifiable = "replay_unverifiable", Owner, 409, REFUSED, "nothing: a part of what the run saw was erased, or it was made by another behaviour version";
    InvalidCommit = "invalid_commit", Developer, 500, INTERNAL, "report it with the message: the caller built an impossible write";
    HomeMissing = "home_missing", Owner, 503, HOME, "run `verger init`, or name another home with --home";
    HomeInvalid = "home_invalid", Owner, 503, HOME, "put right what the message names, or use another home with --home";
    HomeLocked = "home_locked", Owner, 503, HOME, "wait for the process that the message names, or end it";
    SchemaNewer = "schema_newer", Owner, 503, HOME, "use the version of verger that wrote this home, or a newer one";
    SchemaOlder = "schema_older", Owner, 503, HOME, "run `verger init` once: it brings the home up to date and changes nothing else";
    OutputFailed = "output_failed", Owner, 500, STORAGE, "what was asked for is done; repeat it with the same operation id to see the answer";
    StorageFull = "storage_full", Owner, 507, STORAGE, "free some space and try again; nothing was written";
    StorageError = "storage_error", Owner, 503, STORAGE, "look at the disk and its permissions; nothing was written";
    StorageFailing = "storage_failing", Owner, 503, STORAGE, "look at the disk, then start again; until then the home is read-only";
    CommitUnknown = "commit_unknown", Caller, 503, STORAGE, "repeat with the same operation id: it cannot be done twice";
    DatabaseDamaged = "database_damaged", Owner, 500, DAMAGED, "run `verger log verify`: if the log is sound, `verger log rebuild` repairs the tables; if not, restore from a backup";
    LogDamaged = "log_damaged", Owner, 500, DAMAGED, "restore from a backup, and keep the damaged files for a look";
    HeadMismatch = "head_mismatch", Owner, 409, DAMAGED, "look where the anchor came from: if the file was cut or replaced since, restore it from a backup";
    CursorFromOtherHistory = "cursor_from_other_history", Owner, 409, DAMAGED, "see `verger log cursor list`, then reset the consumer with `verger log cursor reset NAME --to-head`";
    SnapshotExpired = "snapshot_expired", Caller, 503, STORAGE, "repeat the read";
    Internal = "internal_error", Developer, 500, INTERNAL, "report it with the message";
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_differ_and_have_sane_reports() {
        let texts: BTreeSet<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(texts.len(), ErrorCode::ALL.len());
        for code in ErrorCode::ALL {
            assert!((400..600).contains(&code.http_status()), "{code}");
            assert!((1..=8).contains(&code.exit_code()), "{code}");
        }
    }

    #[test]
    fn fixer_names_are_fixed() {
        assert_eq!(Fixer::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(), ["caller", "owner", "developer"]);
    }
}
