//! `tidy` keeps the rules of `STYLE.md` and `ARCHITECTURE.md` that can be read off the text.
//!
//! Each rule is one file with a `check(project, report)`. A rule never stops at its first finding, and no rule
//! depends on another's verdict, so that one run tells everything there is to repair. What stops a run is only
//! a project that cannot be read at all ([`project::Error`]).

mod clippy_files;
mod contract_ids;
mod edges;
mod error_pages;
mod markdown;
mod project;
mod report;
mod rooms;
mod sources;

use std::path::PathBuf;

use project::Project;
pub(crate) use report::Report;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Any directory inside the project's cargo workspace.
    pub(crate) root: PathBuf,
    /// Write the files that tidy owns before checking them.
    pub(crate) fix: bool,
}

pub(crate) fn run(options: &Options) -> Result<Report, project::Error> {
    let project = Project::load(&options.root)?;
    let mut report = Report { sources_count: project.sources.len(), ..Report::default() };

    let rooms = rooms::read(&project, &mut report)?;
    edges::check(&project, &rooms, &mut report)?;
    if options.fix {
        clippy_files::write(&project, &rooms, &mut report)?;
    }
    clippy_files::check(&project, &rooms, &mut report)?;
    sources::check(&project, &mut report);
    contract_ids::check(&project, &mut report)?;
    error_pages::check(&project, &mut report)?;

    report.findings.sort();
    Ok(report)
}
