//! The tools of the house that proposals turn into, and what the decision must know of each.

use policy::{Capability, Risk};

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
