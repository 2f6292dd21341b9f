//! `verger init`.

use std::path::Path;

use runtime::{Env, Handle, Home};
use serde_json::json;

use crate::output::{Failure, Out};

const EXAMPLE: &str = "examples/agents/planner.yaml";

pub(crate) fn run(home: &Home, home_flag: Option<&Path>, env: &Env, out: &mut Out) -> Result<(), Failure> {
    let made = Handle::init(home, env)?;
    if out.json {
        let content = json!({ "home": made.folder.to_string_lossy(), "host": made.host, "created": made.created });
        return out.document("verger.init.v1", content);
    }
    let what = if made.created { "made a home in" } else { "there is a home already in" };
    out.line(&format!("{what} {}", made.folder.display()))?;
    if made.created {
        // Whoever named the home by hand has to name it again.
        let named = home_flag.map_or(String::new(), |home| format!(" --home '{}'", home.display()));
        let hint = out.dim(&format!("next: verger{named} note add \"My first note\""));
        out.line(&hint)?;
        // In a clone there is a manifest to begin with; elsewhere the demonstration shows an agent at work.
        let agents = if Path::new(EXAMPLE).is_file() {
            format!("or, for an agent: verger{named} run start --manifest {EXAMPLE}")
        } else {
            "or, for an agent: see one at work with `verger demo`, then write a manifest (docs/manifests.md)".to_owned()
        };
        let hint = out.dim(&agents);
        out.line(&hint)?;
    }
    Ok(())
}
