//! `verger init`.

use runtime::{Env, Handle, Home};
use serde_json::json;

use crate::output::{Failure, Out};

pub(crate) fn run(home: &Home, env: &Env, out: &mut Out) -> Result<(), Failure> {
    let made = Handle::init(home, env)?;
    if out.json {
        let content = json!({ "home": made.folder, "host": made.host, "created": made.created });
        return out.document("verger.init.v1", content);
    }
    let what = if made.created { "made a home in" } else { "there is a home already in" };
    out.line(&format!("{what} {}", made.folder.display()))?;
    if made.created {
        let hint = out.dim("next: verger note add \"My first note\"");
        out.line(&hint)?;
    }
    Ok(())
}
