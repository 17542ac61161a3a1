//! stub
use super::Failed;
use std::process::ExitCode;
/// stub
#[derive(Debug, clap::Args)]
pub(super) struct Demo {}
impl Demo {
    pub(super) fn main(self) -> Result<ExitCode, Failed> {
        Err(Failed::new("x"))
    }
}
