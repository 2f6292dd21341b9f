//! What tidy has to say: findings that name a place, a rule and what is wrong there.
//!
//! One line per finding, `path:line: rule: message`, the shape that editors and terminals turn into a link.
//! Problems make the run fail; warnings are shown and forgotten.

use std::fmt;

#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) findings: Vec<Finding>,
    /// Files that `--fix` wrote because they differed.
    pub(crate) written: Vec<String>,
    pub(crate) sources_count: usize,
}

impl Report {
    pub(crate) fn problem(&mut self, rule: Rule, path: &str, line: usize, message: String) {
        self.add(Severity::Problem, rule, path, line, message);
    }

    pub(crate) fn warning(&mut self, rule: Rule, path: &str, line: usize, message: String) {
        self.add(Severity::Warning, rule, path, line, message);
    }

    pub(crate) fn problems_count(&self) -> usize {
        self.findings.iter().filter(|finding| finding.severity == Severity::Problem).count()
    }

    fn add(&mut self, severity: Severity, rule: Rule, path: &str, line: usize, message: String) {
        assert!(line > 0, "lines are counted from one");
        self.findings.push(Finding { path: path.to_owned(), line, rule, severity, message });
    }
}

/// One thing to repair. The order of the fields is the order of the output.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    rule: Rule,
    severity: Severity,
    message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, severity, message } = self;
        let severity = match severity {
            Severity::Problem => "",
            Severity::Warning => "warning: ",
        };
        write!(f, "{path}:{line}: {}: {severity}{message}", rule.name())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    Problem,
    Warning,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    Rooms,
    Edges,
    ModuleDocs,
    Leftovers,
    Sizes,
    ContractIds,
    ErrorPages,
    ClippyFiles,
}

impl Rule {
    fn name(self) -> &'static str {
        match self {
            Self::Rooms => "rooms",
            Self::Edges => "edges",
            Self::ModuleDocs => "module-docs",
            Self::Leftovers => "leftovers",
            Self::Sizes => "sizes",
            Self::ContractIds => "contract-ids",
            Self::ErrorPages => "error-pages",
            Self::ClippyFiles => "clippy-files",
        }
    }
}
