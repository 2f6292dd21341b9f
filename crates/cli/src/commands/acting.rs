//! What every command that changes something has in common: it takes the home, acts once under its name, and says that name.

use domain::code::ErrorCode;
use domain::records::switch::SwitchSubject;
use runtime::{ClientKey, Env, Error, Home, House};

use crate::commands::note::{Operation, open};
use crate::output::{Failure, note, shortened};

/// Takes the home, acts, and gives it back. What the act was called is told in any case: whoever does not learn how it ended can
/// repeat it under the same name.
pub(super) fn act<T>(
    home: &Home,
    env: &Env,
    operation: &Operation,
    act: impl FnOnce(&mut House, &ClientKey) -> runtime::Result<T>,
) -> Result<(T, ClientKey), Failure> {
    let key = operation.key(env)?;
    let handle = open(home, env)?;
    let mut house = handle.house();
    let result = act(&mut house, &key);
    note(&format!("operation {}", key.as_str()));
    drop(house);
    // What was done is durable already; a failure to close is worth a word, not the answer.
    if let Err(error) = handle.close() {
        note(&format!("warning[{}]: {error}", error.code));
    }
    let done = result.map_err(|error| naming(error, Some(&key)))?;
    Ok((done, key))
}

/// An operation id that was used before is called as it was given: the store knows only what it makes of it.
pub(super) fn naming(mut error: Error, key: Option<&ClientKey>) -> Error {
    if let Some(key) = key.filter(|key| error.code == ErrorCode::OperationIdReused && !error.message.contains(key.as_str())) {
        error.message = format!("operation id `{}` was used for a different request", key.as_str());
        error.details["operation_id"] = key.as_str().into();
    }
    error
}

/// A line on stderr when something is stopped, so that nobody wonders why nothing happens.
pub(super) fn tell_stops(house: &House) {
    // Whoever cannot read it is told so by the command itself.
    let Ok(stops) = house.stops() else { return };
    if let Some(first) = stops.first() {
        let others = if stops.len() > 1 { format!(" and {} more", stops.len() - 1) } else { String::new() };
        let reason = if first.reason.is_empty() { String::new() } else { format!(" ({})", shortened(&first.reason, 60)) };
        note(&format!("stopped: {}{reason}{others}; see `verger stop --status`", name(&first.subject, house)));
    }
}

/// What people call a subject.
pub(super) fn name(subject: &SwitchSubject, house: &House) -> String {
    match subject {
        SwitchSubject::Everything => "everything".to_owned(),
        SwitchSubject::Agent(id) => house.agent(*id).map_or_else(|_| id.to_string(), |agent| format!("agent {}", agent.name)),
        SwitchSubject::Tools(class) => format!("tools of class {class}"),
    }
}

/// The words for what had been done before.
pub(super) fn again(repeated: bool) -> &'static str {
    if repeated { " (it had been done before)" } else { "" }
}
