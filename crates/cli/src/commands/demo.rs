//! `verger demo`.

use runtime::Env;

use crate::output::{Failure, Out};

#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {}

pub(crate) fn run(_args: &DemoArgs, _env: &Env, _out: &mut Out) -> Result<(), Failure> {
    Ok(())
}
