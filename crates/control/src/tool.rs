//! The tools of the house that proposals turn into, and what the decision must know of each.

use domain::hash::Hash;
use domain::records::slug::Slug;
use policy::{Act, Capability, Risk, Target};

use crate::manifest::Manifest;

/// One tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tool {
    pub name: &'static str,
    /// What a kill switch for tools names.
    pub class: &'static str,
    pub capability: Capability,
    pub risk: Risk,
    /// Changes what people have, so a reviewed agent asks first. The controller's own bookkeeping does not: it follows from what was
    /// decided already.
    pub mutates: bool,
    /// Keeping data takes a person's word (004, section 14), unless the owner has given it in the manifest.
    pub keeps_data: bool,
}

const fn tool(name: &'static str, class: &'static str, capability: Capability, risk: Risk) -> Tool {
    Tool { name, class, capability, risk, mutates: false, keeps_data: false }
}

/// Every tool of the house.
pub const OURS: [Tool; 6] = [
    Tool { mutates: true, ..tool("create_task", "task", Capability::TaskWrite, Risk::Low) },
    tool(SELECT_NEXT_TASK, "task", Capability::TaskWrite, Risk::Low),
    tool(COMPLETE_TASK, "task", Capability::TaskWrite, Risk::Low),
    Tool { mutates: true, keeps_data: true, ..tool("persist_artifact", "artifact", Capability::ArtifactWrite, Risk::Medium) },
    Tool { mutates: true, keeps_data: true, ..tool("generate_message", "artifact", Capability::ArtifactWrite, Risk::Medium) },
    tool("request_user_input", "question", Capability::Ask, Risk::Low),
];

/// Chooses the task that the run works on.
pub const SELECT_NEXT_TASK: &str = "select_next_task";

/// The controller's own: a task whose required effects are there is done.
pub const COMPLETE_TASK: &str = "complete_task";

#[must_use]
pub fn find(name: &str) -> Option<&'static Tool> {
    OURS.iter().find(|tool| tool.name == name)
}

/// What is put to the layers when an agent wants to use a tool, really or in somebody's imagination. A tool that nobody knows is as
/// risky as can be.
#[must_use]
pub fn act(manifest: &Manifest, name: &str, targets: Vec<Target>, content: Hash) -> Act {
    let standing = manifest.preapproved.contains(name);
    let (class, capability, risk, mutates, keeps_data) = match (manifest.services.get(name), find(name)) {
        (Some(service), _) => (service.class.clone(), Capability::OutsideCall, service.risk, true, false),
        (None, Some(tool)) => (slug(tool.class), tool.capability, tool.risk, tool.mutates, tool.keeps_data),
        (None, None) => (slug("unknown"), Capability::OutsideCall, Risk::High, true, false),
    };
    let (mutates, needs_approval) = (mutates && !standing, keeps_data && !standing);
    Act::Use { tool: name.to_owned(), class, capability, risk, mutates, needs_approval, targets, content }
}

/// A text that is no plain word becomes one that no scope and no vocabulary has.
pub(crate) fn slug(text: &str) -> Slug {
    Slug::parse(text).unwrap_or_else(|_| Slug::parse("unknown").expect("a plain word"))
}
